"""What is in the rollouts of a catalogue, dump by dump; one that cannot be read is a line, not the end."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harborrl_trainer.dump_reading import logs, measures
from harborrl_trainer.dump_reading.catalogue import Catalogue, Entry
from harborrl_trainer.dump_reading.measures import LogProbGap, RolloutStatistics, TrialStatistics
from harborrl_trainer.dump_reading.reader import Reader, RefusedDumpError, TornDumpError
from harborrl_trainer.dumps import SETTLE_SECONDS


@dataclass(frozen=True)
class Row:
    entry: Entry
    statistics: RolloutStatistics | None
    gap: LogProbGap | None
    trials: TrialStatistics | None
    turns: int | None
    problems: Sequence[str] = field(default_factory=tuple)
    """Dumps that were refused, one line each."""


def summarise(
    catalogue: Catalogue, reader: Reader, *, superseded: bool = False, last: int | None = None, now: float | None = None
) -> Iterator[Row]:
    """A row for each rollout that counts (with `superseded`, for the others too), the newest `last` of them."""
    entries = [entry for entry in catalogue.entries if entry.owned or superseded]
    if last is not None:
        newest = sorted({entry.rollout for entry in entries})[-last:]
        entries = [entry for entry in entries if entry.rollout in newest]
    trials = logs.trials(catalogue.trial_logs)
    for entry in entries:
        yield _row(entry, reader, trials.get((entry.rollout, entry.evaluation)), time.time() if now is None else now)


def _row(entry: Entry, reader: Reader, trials: TrialStatistics | None, now: float) -> Row:
    problems: list[str] = []
    found, gap = None, None
    if entry.rollout_file is not None:
        collected = _read(reader.rollout, entry.rollout_file, problems, now)
        found = measures.of_rollout(collected, entry.rollout) if collected is not None else None
    digests = [
        digest
        for _, path in sorted(entry.train_files.items())
        if (digest := _read(reader.train, path, problems, now)) is not None
    ]
    if digests and len(digests) == len(entry.train_files):
        gap = measures.of_training(digests)
    turns = logs.turns(entry.trajectory) if entry.trajectory else None
    return Row(entry, found, gap, trials, turns, tuple(problems))


def _read[T](read: Callable[[Path], T], path: Path, problems: list[str], now: float) -> T | None:
    try:
        return read(path)
    except RefusedDumpError as error:
        young = isinstance(error, TornDumpError) and path.exists() and now - path.stat().st_mtime < SETTLE_SECONDS
        hint = f"; it is younger than {SETTLE_SECONDS:g} s and may not be whole yet" if young else ""
        problems.append(f"{error}{hint}")
        return None


def document(row: Row) -> dict[str, Any]:
    """For programs."""
    entry = row.entry
    return {
        **entry_document(entry),
        "statistics": measures.document(row.statistics),
        "logProbGap": measures.document(row.gap),
        "trials": measures.document(row.trials),
        "turns": row.turns,
        "problems": list(row.problems),
    }


def entry_document(entry: Entry) -> dict[str, Any]:
    id_ = entry.incarnation
    return {
        "rollout": entry.rollout,
        "evaluation": entry.evaluation,
        "attempt": id_.attempt if id_ else None,
        "incarnation": id_.incarnation if id_ else None,
        "owned": entry.owned,
        "collected": entry.rollout_file is not None,
        "ranks": sorted(entry.train_files),
        "trained": entry.is_trained,
        "trajectory": entry.trajectory is not None,
        "time": entry.time,
        "bytes": entry.size,
    }
