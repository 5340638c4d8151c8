"""From a finished session and its verdict to what is dumped and what is trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harborrl_trainer.native import grpo
from harborrl_trainer.native.policy import StepReport, TrainSample
from harborrl_trainer.native.session import Trajectory
from harborrl_trainer.prompt_rows import Prompt
from harborrl_trainer.rollout.groups import Group


@dataclass(frozen=True)
class Sample:
    """What one trial leaves behind for training; its verdict stands in the TrialEnd beside it."""

    index: int
    """Counts samples over the whole run."""
    group_index: int
    prompt: Prompt
    trajectory: Trajectory
    messages: Sequence[Mapping[str, Any]]
    response: str


def document(
    sample: Sample, *, rollout: int, reward: float, status: str, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """A Sample dictionary with Miles' keys, plain values only, so that torch.load(weights_only=True) reads it."""
    trajectory = sample.trajectory
    return {
        "group_index": sample.group_index,
        "index": sample.index,
        "rollout_id": rollout,
        "prompt": [dict(message) for message in sample.messages[: _opening_length(sample.messages)]],
        "tokens": [*trajectory.prompt_ids, *trajectory.response_ids],
        "response": sample.response,
        "response_length": len(trajectory.response_ids),
        "label": None,
        "reward": reward,
        "loss_mask": list(trajectory.loss_mask),
        "weight_versions": list(trajectory.weight_versions),
        "rollout_log_probs": list(trajectory.log_probs),
        "remove_sample": False,
        "status": status,
        "metadata": dict(metadata),
    }


def trajectory_line(sample: Sample, *, reward: float, status: str) -> dict[str, Any]:
    opening = _opening_length(sample.messages)
    return {
        "sample_index": sample.index,
        "group_index": sample.group_index,
        "status": status,
        "reward": reward,
        "prompt": sample.messages[:opening],
        "messages": sample.messages,
    }


def train_samples(groups: Sequence[Group[Sample]]) -> list[TrainSample]:
    """The kept groups' samples with their advantages, in order. No member of a kept group is without a reward."""
    result = []
    for group in groups:
        advantages = grpo.group_advantages(torch.tensor(group.rewards, dtype=torch.float64)).tolist()
        for end, advantage in zip(group.ends, advantages, strict=True):
            if end.payload is None:
                raise ValueError(f"group {group.id} was kept with a member that has no trajectory")
            trajectory = end.payload.trajectory
            result.append(
                TrainSample(
                    group=group.id,
                    prompt_ids=trajectory.prompt_ids,
                    response_ids=trajectory.response_ids,
                    loss_mask=trajectory.loss_mask,
                    rollout_log_probs=trajectory.log_probs,
                    advantage=advantage,
                )
            )
    return result


def train_data(
    samples: Sequence[TrainSample],
    report: StepReport,
    *,
    rollout: int,
    indices: Sequence[int],
    rewards: Sequence[float],
) -> dict[str, Any]:
    """What one training rank dumps after the optimizer step(s) on a rollout; one list entry a sample."""
    return {
        "rollout_id": rollout,
        "rank": 0,
        "cp_rank": 0,
        "cp_size": 1,
        "qkv_format": "thd",
        "rollout_data": {
            "sample_indices": list(indices),
            "group_indices": [sample.group for sample in samples],
            "tokens": [list(sample.ids) for sample in samples],
            "response_lengths": [len(sample.response_ids) for sample in samples],
            "loss_masks": [list(sample.loss_mask) for sample in samples],
            "rewards": list(rewards),
            "advantages": [sample.advantage for sample in samples],
            "rollout_log_probs": [list(sample.rollout_log_probs) for sample in samples],
            "log_probs": report.log_probs,
        },
    }


def _opening_length(messages: Sequence[Mapping[str, Any]]) -> int:
    """Messages before the model's first answer."""
    return next((at for at, message in enumerate(messages) if message.get("role") == "assistant"), len(messages))
