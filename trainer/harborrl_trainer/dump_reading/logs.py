"""The text files beside the pickles: the trial log and trajectories, line by line."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harborrl_trainer.dump_reading.measures import TrialStatistics

LONGEST_LINE = 16 * 1024 * 1024


def trials(paths: Iterable[Path]) -> dict[tuple[int, bool], TrialStatistics]:
    """(rollout, evaluation) -> its trials, of all incarnations: each trial that was started has one line."""
    found: dict[tuple[int, bool], TrialStatistics] = {}
    for path in paths:
        for line in _objects(path):
            rollout = line.get("rollout_id")
            if not isinstance(rollout, int):
                continue
            seen = found.setdefault((rollout, line.get("evaluation") is True), TrialStatistics())
            seen.trials += 1
            seen.kept += line.get("kept") is True
            status = str(line.get("status"))[:40]
            seen.statuses[status] += 1
            if status == "aborted":
                seen.causes[str(line.get("outcome"))[:80]] += 1
            if reason := line.get("drop_reason"):
                seen.drop_reasons[str(reason)[:80]] += 1
    return found


def turns(path: Path) -> int:
    """Answers of the model in all conversations of a trajectory file."""
    return sum(
        sum(isinstance(message, dict) and message.get("role") == "assistant" for message in messages)
        for line in _objects(path)
        if isinstance(messages := line.get("messages"), list)
    )


def _objects(path: Path) -> Iterator[Mapping[str, Any]]:
    """Torn lines are passed over: a live run may be writing the last one."""
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        while line := file.readline(LONGEST_LINE):
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                yield value
