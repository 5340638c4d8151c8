"""Pure: tables of what a run did, from the lines of its metrics.jsonl."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, override

Line = dict[str, Any]
"""One line of metrics.jsonl: `kind` is `step` or `eval` (docs/native-engine.md)."""


def lines(text: str) -> list[Line]:
    """The parsed lines; a torn last line is left out, a torn line elsewhere is an error."""
    raw = text.splitlines()
    parsed = []
    for number, line in enumerate(raw, start=1):
        try:
            parsed.append(json.loads(line))
        except json.JSONDecodeError:
            if number == len(raw):
                break
            raise
    return parsed


def steps(measured: Iterable[Line]) -> list[Line]:
    """Training steps in order; of a rollout that was trained again after a failure the last word counts."""
    newest = {line["rollout_id"]: line for line in measured if line["kind"] == "step"}
    return [newest[rollout] for rollout in sorted(newest)]


def spread_share(trained: list[Line]) -> float:
    """Share of all groups so far whose rewards differ: only they teach anything."""
    groups = sum(step["groups"] for step in trained)
    return sum(step["groups_with_spread"] for step in trained) / groups if groups else 0.0


@dataclass(frozen=True)
class Evaluation:
    """Rewards of one evaluation: mean, standard error of the mean, number of samples."""

    mean: float
    error: float
    samples: int

    @classmethod
    def of(cls, line: Line) -> Evaluation:
        return cls(line["reward_mean"], line["reward_stderr"], line["samples"])

    @override
    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.error:.3f} over {self.samples} samples"


def evaluations(measured: Iterable[Line]) -> dict[int, Evaluation]:
    """By the number of rollouts that were trained before: 0 is the untrained model."""
    return {line["rollout_id"]: Evaluation.of(line) for line in measured if line["kind"] == "eval"}


def difference(before: Evaluation, after: Evaluation) -> tuple[float, float]:
    """(after - before, its standard error) of two independent evaluations."""
    return after.mean - before.mean, math.hypot(before.error, after.error)


def rises(before: Evaluation, after: Evaluation) -> bool:
    """Whether the mean rose by more than two standard errors."""
    gain, error = difference(before, after)
    return gain > 2 * error
