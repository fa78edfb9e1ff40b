"""The backend of our kernels on GPUs."""
