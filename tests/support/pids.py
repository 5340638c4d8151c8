"""Whether a process that nobody here waits for is there."""

from pathlib import Path


def is_running(pid: int) -> bool:
    """Not one that has ended and that its parent has not collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
