"""Results in files of other tools: one tool a file."""
