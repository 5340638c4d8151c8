"""How soon a pass looks again by itself; events wake it sooner."""

LOOK_AGAIN_SECONDS = 30.0
"""Bounds what a lost event can cost. Workloads are not watched: a queue's words are at most this old."""

WHILE_ENDING_SECONDS = 5.0
"""Between two looks at pods that end."""
