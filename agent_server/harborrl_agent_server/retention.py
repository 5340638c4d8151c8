"""Which trial directories go, so that their volume never fills: by number and by age, failed ones later."""

import asyncio
import json
import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from harborrl_agent_server.sessions import RECORD
from harborrl_agent_server.threads import in_thread

LOG = logging.getLogger(__name__)

INTERVAL_SECONDS = 600.0

FAILED_FACTOR = 4
"""Trials without a reward stay in so many times the number and so many times as long: they are what people look at."""

TRIAL_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}-[0-9a-f]{12}")
"""As `sessions.trial_name` makes them; a directory of another name is nobody's business here."""


@dataclass(frozen=True)
class Kept:
    """A trial directory on the volume."""

    path: Path
    changed: float
    """Unix seconds of its record, or of the directory while it has none."""
    failed: bool


@dataclass(frozen=True)
class Rule:
    number: int
    """At most so many trials with a reward; 0: any number."""
    age_s: float
    """And none that is older; 0: however old."""
    young_s: float
    """Nothing younger goes: it may run, here or on another version, or be asked for again (decision 0140)."""


def condemned(kept: Iterable[Kept], rule: Rule, now: float) -> list[Path]:
    """The directories to remove, oldest first."""
    out: list[Kept] = []
    for failed in (False, True):
        factor = FAILED_FACTOR if failed else 1
        newest = sorted((one for one in kept if one.failed is failed), key=lambda one: one.changed, reverse=True)
        for position, one in enumerate(newest):
            too_many = rule.number and position >= rule.number * factor
            too_old = rule.age_s and now - one.changed > rule.age_s * factor
            if (too_many or too_old) and now - one.changed > rule.young_s:
                out.append(one)
    return [one.path for one in sorted(out, key=lambda one: one.changed)]


class Shelf:
    """The trials directory. Its methods block: they belong in a thread."""

    def __init__(self, trials_dir: Path) -> None:
        self._trials_dir = trials_dir
        self._failed: dict[str, bool] = {}
        """By name, for trials that are over: a record is read once."""

    def trials(self) -> list[Kept]:
        with os.scandir(self._trials_dir) as entries:
            found = [
                self._kept(Path(entry.path))
                for entry in entries
                if TRIAL_NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
        self._failed = {one.path.name: self._failed[one.path.name] for one in found if one.path.name in self._failed}
        return found

    def _kept(self, path: Path) -> Kept:
        record = path / RECORD
        try:
            changed = record.stat().st_mtime
        except OSError:
            return Kept(path, path.stat().st_mtime, failed=True)
        if path.name not in self._failed:
            self._failed[path.name] = _is_failed(record)
        return Kept(path, changed, self._failed[path.name])

    def sweep(self, rule: Rule, now: float, spared: Collection[str]) -> list[str]:
        """Remove what the rule condemns; the names of what has gone."""
        gone = []
        for path in condemned(self.trials(), rule, now):
            if path.name in spared:
                continue
            try:
                remove_tree(path)
            except OSError as error:
                LOG.warning("trial directory %s could not be removed: %s", path.name, error)
            else:
                gone.append(path.name)
        return gone


def remove_tree(folder: Path) -> None:
    """Links are removed, never followed. `shutil.rmtree` ends at a thousand levels, and with no OSError."""
    for place, folders, names in os.walk(folder, topdown=False):
        for name in (*folders, *names):
            path = Path(place, name)
            if name in folders and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()
    folder.rmdir()


def _is_failed(record: Path) -> bool:
    try:
        return not json.loads(record.read_text())["answer"]["eval_report"]
    except (OSError, ValueError, KeyError, TypeError):
        return True


async def keep_sweeping(
    shelf: Shelf, rule: Rule, live: Callable[[], Collection[str]], interval_s: float = INTERVAL_SECONDS
) -> None:
    """Until cancelled. A volume that cannot be read is looked at again the next time."""
    while rule.number or rule.age_s:
        await asyncio.sleep(interval_s)
        try:
            gone = await in_thread(shelf.sweep, rule, time.time(), live())
        except OSError as error:
            LOG.warning("the trials directory cannot be read: %s", error)
        else:
            if gone:
                LOG.info("%d old trial directories removed", len(gone))
