"""The lines of metrics.jsonl, and the sentence that the driver's log says for each."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harborrl_trainer.native.policy import StepReport
from harborrl_trainer.native.samples import Sample
from harborrl_trainer.rollout.groups import Group


def step(
    rollout: int,
    groups: Sequence[Group[Sample]],
    kept: Sequence[Group[Sample]],
    report: StepReport,
    *,
    rollout_s: float,
    sync_s: float,
    version: int,
) -> dict[str, Any]:
    """One training step. Rewards are those of kept groups; lengths in tokens, durations in seconds."""
    rewards = [reward for group in kept for reward in group.rewards]
    ends = [end for group in groups for end in group.ends]
    sampled = sum(end.response_tokens for end in ends)
    mean, error = _mean(rewards)
    return {
        "kind": "step",
        "rollout_id": rollout,
        "weight_version": version,
        "reward_mean": mean,
        "reward_stderr": error,
        "groups": len(groups),
        "dropped_groups": len(groups) - len(kept),
        "groups_with_spread": sum(group.has_spread for group in kept),
        "spread_share": sum(group.has_spread for group in kept) / max(len(kept), 1),
        "trials": len(ends),
        "aborted": sum(end.verdict.status == "aborted" for end in ends),
        "turns_mean": sum(end.turns for end in ends) / max(len(ends), 1),
        "sampled_tokens": sampled,
        "rollout_s": rollout_s,
        "train_s": report.seconds,
        "sync_s": sync_s,
        "tokens_per_s": sampled / rollout_s if rollout_s else 0.0,
        **{key: value for key, value in report.metrics().items() if key != "seconds"},
    }


def evaluation(weights: int, groups: Sequence[Group[Sample]], *, seconds: float) -> dict[str, Any]:
    """Mean reward over the evaluation's trials that have one; `rollout_id` is the number of rollouts trained."""
    rewards = [reward for group in groups for reward in group.rewards]
    mean, error = _mean(rewards)
    return {
        "kind": "eval",
        "rollout_id": weights,
        "reward_mean": mean,
        "reward_stderr": error,
        "samples": len(rewards),
        "aborted": sum(len(group.aborted) for group in groups),
        "by_instance": {group.instance_id: _mean(group.rewards)[0] for group in groups},
        "seconds": seconds,
    }


def sentence(line: Mapping[str, Any]) -> str:
    if line["kind"] == "eval":
        return (
            f"evaluation after {line['rollout_id']} rollouts: reward {line['reward_mean']:.3f} "
            f"+- {line['reward_stderr']:.3f} over {line['samples']} samples, {line['aborted']} aborted"
        )
    return (
        f"rollout {line['rollout_id']}: reward {line['reward_mean']:.3f}, "
        f"{line['groups_with_spread']}/{line['groups']} groups with spread, {line['dropped_groups']} dropped, "
        f"loss {line['loss']:.4f}, grad norm {line['grad_norm']:.2f}, log-prob gap {line['logprob_gap']:.4f}, "
        f"{line['sampled_tokens']} tokens, rollout {line['rollout_s']:.1f} s, train {line['train_s']:.1f} s, "
        f"sync {line['sync_s']:.1f} s"
    )


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error; zeros where there is nothing to average."""
    if not values:
        return 0.0, 0.0
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))
