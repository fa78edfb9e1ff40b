"""What a plan should cost on a machine: its events, and the constants that price them."""
