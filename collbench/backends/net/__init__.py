"""Messages of MPI: proxies that move the slots of connections between hosts."""
