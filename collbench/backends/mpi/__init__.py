"""The backend of the MPI library's own collectives."""
