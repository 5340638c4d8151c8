"""Runs in the trainer's pods: preflight, supervisor, Ray driver, and the native GRPO engine."""
