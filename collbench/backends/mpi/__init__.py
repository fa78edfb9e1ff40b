"""The backend of the MPI library's own collectives, in host memory and in GPU memory."""
