"""Reward per training step, from the trial records that the trainer writes beside our trials (docs/contracts.md).

The agent server itself does not know which step a trial is for. Where no trainer of ours writes, there are no records.
Blocking: to be called in a thread.
"""

import json
import math
import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from harborrl_agent_server.dashboard.state import StepReward

READ_AT_ONCE = 4 * 1024 * 1024
"""Bytes of new records that one look takes in; the rest is the next one's."""

STEPS_AT_MOST = 2000
"""The newest, on the page."""

INCARNATION = re.compile(r"a(\d+)/i(\d+)/trials/[^/]+\.jsonl")


@dataclass
class Tally:
    trials: int = 0
    rewards: list[float] = field(default_factory=list)

    def step(self, number: int, evaluation: bool) -> StepReward:
        kept = len(self.rewards)
        mean = math.fsum(self.rewards) / kept if kept else None
        spread = math.fsum((reward - (mean or 0.0)) ** 2 for reward in self.rewards) / (kept - 1) if kept > 1 else 0.0
        error = math.sqrt(spread / kept) if kept else 0.0
        return StepReward(
            step=number,
            evaluation=evaluation,
            trials=self.trials,
            kept=kept,
            mean=None if mean is None else round(mean, 4),
            error=round(error, 4),
        )


Key = tuple[int, bool]
"""(rollout id, whether it is an evaluation)."""

Life = tuple[int, int]
"""(attempt, incarnation)."""


class StepRecords:
    """Follows the records of one run: each look reads only what was appended since the last."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._read: dict[Path, int] = {}
        self._tallies: dict[Life, dict[Key, Tally]] = {}

    def look(self) -> tuple[StepReward, ...]:
        """All steps so far. A rollout that was collected again counts once: as its newest incarnation saw it."""
        for path in sorted(self._run_dir.glob("a*/i*/trials/*.jsonl")):
            found = INCARNATION.fullmatch(path.relative_to(self._run_dir).as_posix())
            if found and not path.is_symlink():
                self._take_in(path, self._tallies.setdefault((int(found[1]), int(found[2])), defaultdict(Tally)))
        newest: dict[Key, Tally] = {}
        for life in sorted(self._tallies):
            newest |= self._tallies[life]
        steps = [tally.step(number, evaluation) for (number, evaluation), tally in sorted(newest.items())]
        return tuple(steps[-STEPS_AT_MOST:])

    def _take_in(self, path: Path, tallies: dict[Key, Tally]) -> None:
        try:
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0), os.SEEK_SET)
                content = file.read(READ_AT_ONCE)
        except OSError:  # gone, or a volume that is away: the next look may find it
            return
        whole = content[: content.rfind(b"\n") + 1]
        self._read[path] = self._read.get(path, 0) + len(whole)
        for line in whole.splitlines():
            count_record(line, tallies)


def count_record(line: bytes, tallies: dict[Key, Tally]) -> None:
    """One line; what is no record (a torn line of a crash) counts for nothing."""
    try:
        record = json.loads(line)
        number, reward = record["rollout_id"], record.get("reward")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return
    if not isinstance(number, int):
        return
    tally = tallies[(number, record.get("evaluation") is True)]
    tally.trials += 1
    if record.get("kept") is True and isinstance(reward, int | float) and math.isfinite(reward):
        tally.rewards.append(float(reward))
