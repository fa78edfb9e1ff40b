"""What results say: the best of one file, changes between files, and settings for NCCL. Takes the frames that compare.load gives, prints nothing."""
