"""How a schedule looks."""
