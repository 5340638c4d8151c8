"""GRPO on Ray with torch and transformers: session server, rollout engine, training step, one readable loop."""
