"""What both engines share about a rollout. Standard library and httpx only, syntax of Python 3.10."""
