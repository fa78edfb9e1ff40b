"""What is shown of findings."""
