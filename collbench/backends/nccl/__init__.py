"""The backend of NCCL's own collectives."""
