"""The backend of PyTorch's collectives on GPUs, and what it shares with PyTorch's on CPUs."""
