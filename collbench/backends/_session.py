"""What every backend speaks: batches in, samples out."""
