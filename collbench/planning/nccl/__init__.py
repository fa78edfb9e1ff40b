"""What NCCL as it is would take: the machine as NCCL sees it, its constants, and its prices.

Our own engine is priced by planning/price; libraries that are installed run by backends/nccl.
"""
