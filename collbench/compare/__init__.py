"""What results say: files of ours and of other tools, read into one table (load)."""
