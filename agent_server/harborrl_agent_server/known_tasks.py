"""Harbor's view of a task, kept while the task's files stay as they are: samples of one task come by the dozen.

Harbor parses, checks and hashes the directory anew for each trial.
"""

import asyncio
import contextlib
import copy
import math
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, override

from dirhash import Filter  # type: ignore[import-untyped] # no stubs
from dirhash import dirhash_impl as dirhash
from harbor.models.task.file_filter import TaskFileFilter
from harbor.models.task.task import Task
from harbor.models.trial.config import TrialConfig
from harbor.tasks.client import TaskDownloadResult
from harbor.trial.trial import Trial
from scantree import RecursionPath  # type: ignore[import-untyped] # no stubs

KEPT = 1024
"""Tasks, some ten kilobytes each; the one that was not used for longest goes."""

FILES = frozenset({"task.toml", "instruction.md", "trajectory.json", "Dockerfile", "docker-compose.yaml", "solve.sh"})

READ_HERE = FILES | {"environment", "solution", "steps"}
"""Names whose content is read on this side, and shown to the model or sent into a sandbox. Harbor judges `tests`."""

READ_TOO = frozenset({"README.md", ".gitignore", ".harborignore", "test.sh"})
"""Names that are read to tell one state of a task from another; their content goes nowhere."""

LONGEST_VALUE = 64 * 1024
"""Bytes of one variable. Linux takes 128 KiB for a word of a command line, on which they go with their command."""

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


class Unlinked(Filter):  # type: ignore[misc] # dirhash has no types
    """Harbor's own choice without links: what one leads to may be this server's whole disk, or have no end."""

    def __init__(self, file_filter: KnownFilter) -> None:
        super().__init__()
        self._file_filter = file_filter

    @override
    def include(self, recursion_path: RecursionPath) -> bool:
        path = self._file_filter.task_dir / recursion_path.relative
        return not path.is_symlink() and not self._file_filter.is_excluded(path)


class KnownTask(Task):
    def __init__(self, task_dir: Path) -> None:
        super().__init__(task_dir)
        if self.has_steps:
            raise ValueError("[[steps]]: tasks of several steps are not run here; make each step a task of its own")
        refuse_values(self.config.model_dump())
        self.file_filter = KnownFilter(self.task_dir)
        self._checksum: str = dirhash(self.task_dir, "sha256", filter_=Unlinked(self.file_filter))

    @property
    @override
    def checksum(self) -> str:
        """Of what was read when it became known: no trial reads it all again."""
        return self._checksum

    def for_trial(self) -> "KnownTask":
        """Harbor writes a trial's overrides into the configuration."""
        own = copy.copy(self)
        own.config = self.config.model_copy(deep=True)
        return own


class KnownTasks:
    def __init__(self) -> None:
        self._known: OrderedDict[Path, tuple[State, KnownTask]] = OrderedDict()
        self._lock = threading.Lock()
        """Never held while a volume is read."""

    def task(self, task_dir: Path) -> KnownTask:
        """Blocks while the volume is read, so it belongs in a thread.

        Raises what Harbor raises on a directory that is no task.
        """
        state = tuple(state_of(str(task_dir)))
        with self._lock:
            found = self._known.get(task_dir)
        if found is None or found[0] != state:
            refuse_links(task_dir, (Path(path) for path, *_ in state))
            found = (state, KnownTask(task_dir))
        with self._lock:
            self._known[task_dir] = found
            self._known.move_to_end(task_dir)
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        return found[1].for_trial()


def refuse_links(task_dir: Path, paths: Iterable[Path]) -> None:
    """Raises `ValueError` for a link by which a task's author would be shown any file of this server's, or stop it."""
    for path in filter(Path.is_symlink, paths):
        name, target = path.relative_to(task_dir), path.resolve()
        if path.name in READ_HERE and not target.is_relative_to(task_dir.parent):
            raise ValueError(f"{name} leads out of {task_dir.parent}; put the file itself there")
        if path.name in READ_HERE | READ_TOO and target.exists():
            refuse_special(path, target.stat().st_mode)


def refuse_special(path: Path, mode: int) -> None:
    """Who opens a pipe waits for whoever writes to it, in a thread that other tasks need."""
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ValueError(f"{path} is a pipe, a socket or a device; a task holds files, folders and links")


def refuse_values(document: Mapping[str, Any]) -> None:
    """Raises `ValueError` for a time in which nothing can be done, and for text that no process can be given.

    TOML knows NaN, and asyncio's clock does not: one time-out of it holds up those of all other trials.
    """
    for name, value in named(document):
        if isinstance(value, str) and "\0" in value:
            raise ValueError(f"{name} holds a NUL, which no command and no variable can")
        if isinstance(value, str) and ".env." in f".{name}" and len(value.encode(errors="replace")) > LONGEST_VALUE:
            raise ValueError(f"{name} is longer than {LONGEST_VALUE} bytes; put it into a file of the task")
        if isinstance(value, float) and math.isnan(value):
            raise ValueError(f"{name} = nan: no number; write one, or leave the field out")
        if name.endswith("timeout_sec") and not name.startswith("agent.") and value is not None and value <= 0:
            raise ValueError(f"{name} = {value:g}: a limit above 0 s")


def named(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Each leaf of a configuration, by its dotted name."""
    if isinstance(value, Mapping | list):
        parts = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, part in parts:
            yield from named(part, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def state_of(folder: str) -> Iterator[tuple[str, int, int, int]]:
    """Raises `ValueError` for what is neither file, folder nor link."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            seen = entry.stat(follow_symlinks=False)
            if not entry.is_symlink():
                refuse_special(Path(entry.path), seen.st_mode)
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


def new_trial(config: TrialConfig) -> Trial:
    """Harbor's trial of a task, with all that it will read of the task before a sandbox is there. Blocks."""
    trial = asyncio.run(KnownTrial.create(config))  # awaits nothing: Harbor reads and hashes in one go
    with contextlib.suppress(OSError, ValueError):
        hashed(trial)
    return trial


def hashed(trial: Trial) -> str:
    """It keeps what it finds, and is asked for in the event loop later, where what fails here has its say."""
    return trial.agent_environment.environment_id
