"""Which rank, host, rail or path is slow, from the rates of pairs of ranks. Pure."""
