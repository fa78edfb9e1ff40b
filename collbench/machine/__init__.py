"""What there is: hosts, GPUs, links, how they are found out and in which files they come."""
