"""Rewards and losses of a run from its trial logs (`trials/*.jsonl`), read once, from the last place on.

A log grows while it is read: a last line without its end is left for the next look. A line that is no trial record is
counted and skipped.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harborrl_trainer.layout import IncarnationId

READ_LIMIT = 8 * 1024 * 1024
"""Bytes of one file taken at one look, so that a first look at a long run stays short."""


@dataclass
class _Mean:
    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1

    @property
    def value(self) -> float | None:
        return self.total / self.count if self.count else None


class TrialLog:
    """Reads what was appended to the trial logs of one incarnation since the last look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}

    def read(self) -> Iterator[Any]:
        """One parsed JSON value a line; a line that is no JSON comes as None."""
        for path in sorted(self._folder.glob("*.jsonl")):
            for line in self._appended(path):
                try:
                    yield json.loads(line)
                except ValueError:
                    yield None

    def _appended(self, path: Path) -> list[bytes]:
        start = self._offsets.get(path, 0)
        with path.open("rb") as stream:
            stream.seek(start)
            data = stream.read(READ_LIMIT)
        whole = data.rfind(b"\n") + 1
        self._offsets[path] = start + whole
        return [line for line in data[:whole].splitlines() if line.strip()]


@dataclass(frozen=True)
class TrialSummary:
    trials: int = 0
    """Training trials that ended, over all incarnations, kept or not."""
    aborted: int = 0
    dropped_groups: int = 0
    unreadable: int = 0


class TrialTally:
    """Counts over every record that was read. Evaluation trials count towards evaluation means alone."""

    def __init__(self) -> None:
        self._trials = 0
        self._aborted = 0
        self._unreadable = 0
        self._dropped: set[tuple[IncarnationId, int, int]] = set()
        self._rewards: dict[tuple[IncarnationId, int], _Mean] = {}
        self._evaluations: dict[tuple[int, IncarnationId], _Mean] = {}

    def add(self, id_: IncarnationId, record: Any) -> None:
        """Count one record of incarnation `id_`; anything that is no trial record counts as unreadable."""
        try:
            rollout, group = int(record["rollout_id"]), int(record["group_id"])
            kept, reward = bool(record["kept"]), record["reward"]
            evaluation, aborted = bool(record["evaluation"]), record["status"] == "aborted"
        except (KeyError, TypeError, ValueError):
            self._unreadable += 1
            return
        scored = isinstance(reward, int | float)
        if evaluation:
            if scored:
                self._evaluations.setdefault((rollout, id_), _Mean()).add(reward)
            return
        self._trials += 1
        self._aborted += aborted
        if not kept:
            self._dropped.add((id_, rollout, group))
        elif scored:
            self._rewards.setdefault((id_, rollout), _Mean()).add(reward)

    @property
    def summary(self) -> TrialSummary:
        return TrialSummary(self._trials, self._aborted, len(self._dropped), self._unreadable)

    def reward_mean(self, id_: IncarnationId | None, rollout: int) -> float | None:
        """Mean reward of one rollout's kept trials as its owner collected it; without an owner, as the newest did."""
        if id_ is not None:
            found = self._rewards.get((id_, rollout))
        else:
            found = max(
                ((key, mean) for key, mean in self._rewards.items() if key[1] == rollout), default=(None, None)
            )[1]
        return found.value if found else None

    def evaluations(self) -> dict[int, float]:
        """Mean reward of each evaluation, by the rollout it followed; of one that was repeated the last word counts."""
        ordered = sorted(self._evaluations.items(), key=lambda item: item[0])
        return {rollout: mean.value for (rollout, _), mean in ordered if mean.value is not None}
