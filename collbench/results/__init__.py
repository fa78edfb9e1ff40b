"""The row of a result and the statistics of its repeats."""
