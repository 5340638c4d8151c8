"""Two runs side by side: the same number of both, and their difference."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from harborrl_trainer.dump_reading.summary import Row


class Values(NamedTuple):
    """None where a run has no such number."""

    first: float | None
    second: float | None
    difference: float | None


@dataclass(frozen=True)
class Pair:
    rollout: int
    evaluation: bool
    values: Mapping[str, Values]

    @property
    def name(self) -> str:
        return f"eval {self.rollout}" if self.evaluation else str(self.rollout)


def compare(first: Sequence[Row], second: Sequence[Row]) -> list[Pair]:
    """A pair for each rollout that either has."""
    sides = [{(row.entry.rollout, row.entry.evaluation): row for row in rows} for rows in (first, second)]
    pairs = []
    for key in sorted(sides[0].keys() | sides[1].keys()):
        one, other = (_measures(side.get(key)) for side in sides)
        values = {name: _values(one[name], other[name]) for name in one}
        pairs.append(Pair(*key, values))
    return pairs


def overall(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Mean differences over the rollouts that both have, evaluations left out."""
    common = [pair for pair in pairs if not pair.evaluation and pair.values["reward"].difference is not None]
    names = pairs[0].values if pairs else {}
    return {"common": len(common), "meanDifference": {name: _mean(common, name) for name in names}}


def document(pair: Pair) -> dict[str, Any]:
    return {
        "rollout": pair.rollout,
        "evaluation": pair.evaluation,
        **{name: values._asdict() for name, values in pair.values.items()},
    }


def _measures(row: Row | None) -> dict[str, float | None]:
    found = row.statistics if row else None
    return {
        "reward": found.reward.mean if found and found.reward else None,
        "responseTokens": found.response_tokens.mean if found and found.response_tokens else None,
        "truncatedShare": found.statuses.get("truncated", 0) / found.samples if found and found.samples else None,
        "logProbGap": row.gap.mean_absolute if row and row.gap else None,
    }


def _values(first: float | None, second: float | None) -> Values:
    return Values(first, second, None if first is None or second is None else second - first)


def _mean(pairs: Sequence[Pair], name: str) -> float | None:
    found = [difference for pair in pairs if (difference := pair.values[name].difference) is not None]
    return statistics.fmean(found) if found else None
