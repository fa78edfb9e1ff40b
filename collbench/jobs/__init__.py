"""What a job printed or sends: logs of NCCL, traces of its collectives, and their replay."""
