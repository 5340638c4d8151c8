"""Pure: tables of what a run did, from the lines of its metrics.jsonl."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Step = dict[str, Any]


def steps(text: str) -> list[Step]:
    """Lines of metrics.jsonl; a torn last line is left out, a torn line elsewhere is an error."""
    lines = text.splitlines()
    parsed = []
    for number, line in enumerate(lines, start=1):
        try:
            parsed.append(json.loads(line))
        except json.JSONDecodeError:
            if number == len(lines):
                break
            raise
    return parsed


@dataclass(frozen=True)
class Evaluation:
    """Rewards of one evaluation: mean, standard error of the mean, number of samples."""

    mean: float
    error: float
    samples: int

    @classmethod
    def of(cls, rewards: Iterable[float]) -> Evaluation:
        values = list(rewards)
        count = len(values)
        mean = sum(values) / count
        variance = sum((value - mean) ** 2 for value in values) / max(count - 1, 1)
        return cls(mean, math.sqrt(variance / count), count)


def difference(before: Evaluation, after: Evaluation) -> tuple[float, float]:
    """(after - before, its standard error) of two independent evaluations."""
    return after.mean - before.mean, math.hypot(before.error, after.error)


def rises(before: Evaluation, after: Evaluation) -> bool:
    """Whether the mean rose by more than two standard errors."""
    gain, error = difference(before, after)
    return gain > 2 * error
