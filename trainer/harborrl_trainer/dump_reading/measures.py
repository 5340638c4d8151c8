"""Digests of one rollout -> the numbers that people compare."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Any

from harborrl_trainer.dump_reading.digests import RolloutDigest, SampleDigest, TrainDigest


@dataclass(frozen=True)
class Spread:
    """Mean, population standard deviation and largest value."""

    mean: float
    std: float
    max: float


@dataclass(frozen=True)
class LogProbGap:
    """How far the trainer's log-probabilities lie from the rollout engine's, nats, over trained tokens."""

    tokens: int
    mean_absolute: float
    max_absolute: float
    mean: float
    """Of trainer minus rollout."""
    not_finite: int = 0


@dataclass(frozen=True)
class RolloutStatistics:
    samples: int
    groups: int
    statuses: Mapping[str, int]
    rewards: int
    """Samples with a finite reward; the others are in no mean."""
    reward: Spread | None
    groups_without_signal: int
    """Groups whose rewards are all equal: their advantages are 0."""
    response_tokens: Spread | None
    trained_tokens: int
    staleness: Spread | None
    """Rollout id minus the oldest weight version of a sample's turns, as Miles counts it, if versions are numbers."""
    mixed_versions: int
    """Samples whose turns saw more than one version."""


@dataclass
class TrialStatistics:
    """Lines of the trial log that are about one rollout."""

    trials: int = 0
    kept: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    drop_reasons: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    """Of trials that were aborted, by outcome."""


def of_rollout(digest: RolloutDigest, rollout: int) -> RolloutStatistics:
    samples = digest.samples
    groups: dict[int | None, list[float]] = {}
    for sample in samples:
        reward = _reward(sample)
        groups.setdefault(sample.group, []).extend([] if reward is None else [reward])
    rewards = [reward for found in groups.values() for reward in found]
    stale = [rollout - sample.oldest_version for sample in samples if sample.oldest_version is not None]
    return RolloutStatistics(
        samples=len(samples),
        groups=len(groups),
        statuses=dict(Counter(sample.status for sample in samples).most_common(8)),
        rewards=len(rewards),
        reward=spread(rewards),
        groups_without_signal=sum(len(found) > 1 and len(set(found)) == 1 for found in groups.values()),
        response_tokens=spread([sample.response for sample in samples if sample.response is not None]),
        trained_tokens=sum(sample.trained or 0 for sample in samples),
        staleness=spread(stale),
        mixed_versions=sum(sample.oldest_version != sample.newest_version for sample in samples),
    )


def of_training(digests: Sequence[TrainDigest]) -> LogProbGap | None:
    """Each part of each sample once: ranks of one tensor parallel group dump the same."""
    parts: dict[tuple[int | None, int], Any] = {}
    for digest in digests:
        for position, row in enumerate(digest.rows):
            if row.compared is not None:
                key = row.index if row.index is not None else -1 - position
                parts.setdefault((key, digest.cp_rank), row)
    tokens = sum(row.compared for row in parts.values())
    if not tokens:
        return None
    return LogProbGap(
        tokens=tokens,
        mean_absolute=sum(row.absolute_sum for row in parts.values()) / tokens,
        max_absolute=max(row.absolute_max for row in parts.values()),
        mean=sum(row.signed_sum for row in parts.values()) / tokens,
        not_finite=sum(row.not_finite for row in parts.values()),
    )


def spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return Spread(statistics.fmean(values), statistics.pstdev(values), max(values))


def total(found: Iterable[RolloutStatistics]) -> dict[str, Any]:
    """Over several rollouts: sums, and means weighted by samples."""
    rows = list(found)
    rewards = [(row.reward.mean, row.rewards) for row in rows if row.reward]
    statuses: Counter[str] = Counter()
    for row in rows:
        statuses.update(row.statuses)
    weight = sum(count for _, count in rewards)
    return {
        "rollouts": len(rows),
        "samples": sum(row.samples for row in rows),
        "statuses": dict(statuses),
        "rewardMean": math.fsum(mean * count for mean, count in rewards) / weight if weight else None,
    }


def document(value: Any) -> Any:
    """As JSON, in camelCase like all documents of ours."""
    if is_dataclass(value):
        return {_camel(key): document(one) for key, one in vars(value).items()}
    return dict(value) if isinstance(value, Mapping) else value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _reward(sample: SampleDigest) -> float | None:
    return sample.reward if isinstance(sample.reward, float) else None
