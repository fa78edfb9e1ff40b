"""What is wired to what, how fast that is, and what it allows: pure, whoever found it out."""
