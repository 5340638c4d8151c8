"""How far a run has come, by the names and times of its dumps alone. Dumps are pickles: nothing here ever opens one."""

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from harborrl_trainer import index, layout
from harborrl_trainer.index import Claim
from harborrl_trainer.layout import IncarnationId, RunLayout

SETTLE_SECONDS = 10.0
"""Age below which a dump is not trusted: Miles writes them in place, so a young one may be half a file."""
MEDIAN_WINDOW = 20
"""Rollouts that the median looks back on: one slow rollout does not move it, a lasting change does."""


@dataclass(frozen=True)
class Dumps:
    """What one incarnation has dumped: rollout id -> modification time, seconds since the epoch."""

    collected: Mapping[int, float] = field(default_factory=dict)
    evaluated: Mapping[int, float] = field(default_factory=dict)
    trained: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    """rollout id -> training rank -> modification time"""


@dataclass(frozen=True)
class DumpSummary:
    collected: int = 0
    """Rollouts collected over the whole run: highest owned id + 1."""
    trained: int = 0
    """Rollouts with a train_data file of every rank, counted like `collected`."""
    last_dump_time: float | None = None
    median_seconds: float | None = None
    """Median time from one rollout's dump to the next of the same incarnation; None before two."""
    lost_rollouts: int = 0
    """Rollouts that were collected and then collected again by a later incarnation, because no checkpoint held them."""
    evaluated: int | None = None
    """Newest rollout id with an evaluation dump."""


def scan_run(run_traces: Path) -> dict[IncarnationId, Dumps]:
    """The dumps of every incarnation below `<traces>/<runPath>`."""
    run = RunLayout(traces=run_traces, checkpoints=run_traces, trials=run_traces)
    return {
        IncarnationId(attempt, incarnation): scan_incarnation(run.incarnation(attempt, incarnation))
        for attempt in _numbers(run_traces, layout.attempt_of)
        for incarnation in _numbers(run_traces / f"a{attempt}", layout.incarnation_of)
    }


def summarise(
    dumps: Mapping[IncarnationId, Dumps],
    claims: Sequence[Claim],
    now: float,
    settle_seconds: float = SETTLE_SECONDS,
) -> DumpSummary:
    """Progress of a run as seen at `now`; `settle_seconds` is 0 once the driver has ended and every file is whole.

    How many ranks make a set complete is read from the widest set of the same incarnation.
    """
    before = now - settle_seconds
    collected = [
        (rollout, id_) for id_, own in dumps.items() for rollout, time in own.collected.items() if time <= before
    ]
    owned = [rollout for rollout, id_ in collected if _owns(claims, id_, rollout)]
    trained = [
        rollout
        for id_, own in dumps.items()
        for rollout in _complete_sets(own.trained, before)
        if _owns(claims, id_, rollout)
    ]
    evaluated = [rollout for own in dumps.values() for rollout, time in own.evaluated.items() if time <= before]
    return DumpSummary(
        collected=max(owned, default=-1) + 1,
        trained=max(trained, default=-1) + 1,
        last_dump_time=max(_trusted_times(dumps, before), default=None),
        median_seconds=_median_seconds(dumps, before),
        lost_rollouts=len(collected) - len(owned),
        evaluated=max(evaluated, default=None),
    )


def _owns(claims: Sequence[Claim], id_: IncarnationId, rollout: int) -> bool:
    # Without a claim that reaches down to it (an older run, a driver that never claimed) a dump counts as it stands.
    return index.owner(claims, rollout) in {id_, None}


def _complete_sets(trained: Mapping[int, Mapping[int, float]], before: float) -> list[int]:
    world = max((rank + 1 for ranks in trained.values() for rank in ranks), default=0)
    return [
        rollout
        for rollout, ranks in trained.items()
        if len(ranks) == world and all(time <= before for time in ranks.values())
    ]


def _trusted_times(dumps: Mapping[IncarnationId, Dumps], before: float) -> list[float]:
    times = [
        time
        for own in dumps.values()
        for series in (own.collected, own.evaluated, *own.trained.values())
        for time in series.values()
    ]
    return [time for time in times if time <= before]


def _median_seconds(dumps: Mapping[IncarnationId, Dumps], before: float) -> float | None:
    gaps = [
        own.collected[later] - own.collected[earlier]
        for _, own in sorted(dumps.items())
        for earlier, later in pairwise(sorted(own.collected))
        if later == earlier + 1 and own.collected[later] <= before
    ]
    return statistics.median(gaps[-MEDIAN_WINDOW:]) if gaps else None


def scan_incarnation(mine: layout.IncarnationLayout) -> Dumps:
    collected: dict[int, float] = {}
    evaluated: dict[int, float] = {}
    trained: dict[int, dict[int, float]] = {}
    for name, time in _entries(mine.rollout_data, files=True):
        if (dump := layout.rollout_of(name)) is not None:
            (evaluated if dump.evaluation else collected)[dump.rollout] = time
    for name, time in _entries(mine.train_data, files=True):
        if (part := layout.train_of(name)) is not None:
            trained.setdefault(part.rollout, {})[part.rank] = time
    return Dumps(collected, evaluated, trained)


def _entries(folder: Path, *, files: bool = False) -> list[tuple[str, float]]:
    """Names and modification times; what is deleted while we look is as good as never seen."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if not files or entry.is_file():
                        found.append((entry.name, entry.stat().st_mtime))
                except FileNotFoundError:
                    continue
    except (FileNotFoundError, NotADirectoryError):
        return []
    return found


def _numbers(folder: Path, number_of: layout.NameReader) -> list[int]:
    return sorted(number for name, _ in _entries(folder) if (number := number_of(name)) is not None)
