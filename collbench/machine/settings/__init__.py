"""Settings of NCCL, CUDA, MPI and UCX: meanings, NCCL's files, and what is wrong with values."""
