"""What is checked with a job's own volumes and network before a single GPU is held (I5, I6, storage)."""
