"""From `instance_id` to a task directory, without ever leaving the tasks folder."""

import re
from pathlib import Path

INSTANCE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class InvalidInstanceIdError(Exception):
    """The id is no plain directory name."""


class TaskNotFoundError(Exception):
    """No usable task directory has this id."""


def resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # the latter is Python's word for a loop of links
        raise TaskNotFoundError(f"{path} cannot be followed: {error}; replace the link by a real directory") from error


def task_directory(tasks_dir: Path, instance_id: str) -> Path:
    """The resolved task directory of an id; data sets that capitalise ids find their lower-case directory.

    A symlink that leads out of the tasks folder is refused: its author could show any file of ours to a sandbox.
    """
    if not INSTANCE_ID.fullmatch(instance_id):
        raise InvalidInstanceIdError(
            f"instance_id {instance_id[:80]!r}: letters, digits, '.', '_', '-', at most 128; correct the data set row"
        )
    root = tasks_dir.resolve()
    for name in dict.fromkeys((instance_id, instance_id.lower())):
        candidate = resolved(root / name)
        if not candidate.is_dir():
            continue
        if candidate == root or not candidate.is_relative_to(root):
            raise InvalidInstanceIdError(
                f"instance_id {instance_id!r} leads out of {root}; replace the link by a real directory"
            )
        if not (candidate / "task.toml").is_file():
            raise TaskNotFoundError(
                f"{candidate} has no task.toml: a Harbor task needs task.toml, instruction.md and tests/test.sh"
            )
        return candidate
    raise TaskNotFoundError(
        f"no directory {instance_id!r} in {root}: correct instance_id, or mount the volume that holds the task"
    )
