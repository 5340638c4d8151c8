"""Data sets for training: whatever people have in, the JSONL that both engines read out (docs/data.md)."""
