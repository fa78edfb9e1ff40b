"""What NCCL and RCCL print with NCCL_DEBUG: lines, what each says, and what was learned of them.

Nothing here opens a file; `reader.LogReader` is fed lines, once, in any number.
"""
