"""What is linked to what, how fast, and what it allows: pure functions of a topology."""
