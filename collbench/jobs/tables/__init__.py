"""What is shown of logs and replays."""
