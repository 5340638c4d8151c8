"""What both engines share about a rollout: agent client, outcomes, trial log. Standard library and httpx only, Python 3.10."""
