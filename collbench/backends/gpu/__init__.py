"""What the backends on GPUs share."""
