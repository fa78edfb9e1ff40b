"""Settings of NCCL, CUDA, MPI and UCX: what each variable means, which files NCCL reads, and what
is wrong with the values that are set.
"""
