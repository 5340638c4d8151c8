"""Harbor's view of a task, kept while the task's files stay as they are: samples of one task come by the dozen.

Harbor parses, checks and hashes the directory anew for each trial, in the event loop.
"""

import copy
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, override

from harbor.models.task.file_filter import TaskFileFilter
from harbor.models.task.task import Task
from harbor.models.trial.config import TrialConfig
from harbor.tasks.client import TaskDownloadResult
from harbor.trial.trial import Trial

KEPT = 1024
"""Tasks, some ten kilobytes each; the one that was not used for longest goes."""

READ_HERE = frozenset(
    {"task.toml", "instruction.md", "Dockerfile", "docker-compose.yaml", "environment", "solution", "solve.sh", "steps"}
)
"""Names whose content is read on this side, and shown to the model or sent into a sandbox. Harbor judges `tests`."""

State = tuple[tuple[str, int, int, int], ...]
"""Of each name below a directory: size, and when content and inode were changed, in nanoseconds."""


class KnownFilter(TaskFileFilter):
    """Judges a path once. What is judged depends on the directory's files alone."""

    def __init__(self, task_dir: Path) -> None:
        super().__init__(task_dir)
        self._judged: dict[Path, bool] = {}

    @override
    def is_excluded(self, path: Path) -> bool:
        if path not in self._judged:
            self._judged[path] = super().is_excluded(path)
        return self._judged[path]


class KnownTask(Task):
    def __init__(self, task_dir: Path) -> None:
        super().__init__(task_dir)
        self.file_filter = KnownFilter(self.task_dir)

    @cached_property
    @override
    def checksum(self) -> str:
        return super().checksum

    def for_trial(self) -> "KnownTask":
        """Harbor writes a trial's overrides into the configuration."""
        own = copy.copy(self)
        own.config = self.config.model_copy(deep=True)
        return own


class KnownTasks:
    def __init__(self) -> None:
        self._known: OrderedDict[Path, tuple[State, KnownTask]] = OrderedDict()

    def task(self, task_dir: Path) -> KnownTask:
        """Raises what Harbor raises on a directory that is no task."""
        state = tuple(state_of(str(task_dir)))
        found = self._known.get(task_dir)
        if found is None or found[0] != state:
            refuse_ways_out(task_dir, (path for path, *_ in state))
            found = (state, KnownTask(task_dir))
            self._known[task_dir] = found
        self._known.move_to_end(task_dir)
        if len(self._known) > KEPT:
            self._known.popitem(last=False)
        return found[1].for_trial()


def refuse_ways_out(task_dir: Path, paths: Iterable[str]) -> None:
    """Raises `ValueError` for a link by which a task's author would be shown any file of this server's."""
    for path in map(Path, paths):
        if path.name in READ_HERE and path.is_symlink() and not path.resolve().is_relative_to(task_dir.parent):
            raise ValueError(f"{path.relative_to(task_dir)} leads out of {task_dir.parent}; put the file itself there")


def state_of(folder: str) -> Iterator[tuple[str, int, int, int]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            seen = entry.stat(follow_symlinks=False)
            yield entry.path, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns
            if entry.is_dir(follow_symlinks=False):
                yield from state_of(entry.path)


KNOWN = KnownTasks()


class KnownTrial(Trial):
    """Never made itself: its `create` makes Harbor's own trials, of tasks that are known."""

    @staticmethod
    @override
    async def _load_task(config: TrialConfig) -> tuple[Task, TaskDownloadResult]:
        path: Any = config.task.path
        return KNOWN.task(path), TaskDownloadResult(path=path, download_time_sec=0.0, cached=True)
