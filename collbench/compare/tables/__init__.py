"""What is shown of files of results."""
