"""The backend of CPU cores: its ranks, interpreter and lines."""
