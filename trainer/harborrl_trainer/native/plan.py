"""Which trials a rollout has: the job and the prompts drawn before decide, so a resume needs no random state."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from harborrl_trainer.job import TrainingConfig
from harborrl_trainer.prompt_rows import Prompt
from harborrl_trainer.prompts import PromptOrder


@dataclass(frozen=True)
class TrialPlan:
    rollout: int
    group: int
    """Counts groups over the whole run; within one evaluation where it is one."""
    sample: int
    """Counts samples likewise."""
    prompt: Prompt
    seed: int
    evaluation: bool = False


type GroupPlan = Sequence[TrialPlan]


def plan_rollout(rollout: int, prompts: Sequence[Prompt], config: TrainingConfig, drawn: int) -> list[GroupPlan]:
    """`rolloutBatchSize` groups of `nSamplesPerPrompt` trials; each epoch visits each prompt once.

    `drawn` prompts were drawn before, since the run began.
    """
    size = config.rollout_batch_size
    order = PromptOrder(len(prompts), config.seed, config.rollout_shuffle)
    chosen = [prompts[index] for index in order.draw(drawn, size)]
    return _groups(rollout, chosen, config.n_samples_per_prompt, config.seed, first_group=drawn)


def plan_evaluation(weights: int, prompts: Sequence[Prompt], samples_per_prompt: int, seed: int) -> list[GroupPlan]:
    """Every prompt, in order. `weights` is the number of rollouts trained so far and names the evaluation.

    Seeds do not depend on `weights`: two evaluations differ by the policy, not by the luck of the draw.
    """
    return _groups(weights, prompts, samples_per_prompt, seed, first_group=0, evaluation=True)


def _groups(
    rollout: int, prompts: Sequence[Prompt], samples: int, seed: int, *, first_group: int, evaluation: bool = False
) -> list[GroupPlan]:
    def trial(group: int, member: int, prompt: Prompt) -> TrialPlan:
        sample = group * samples + member
        purpose = "evaluation" if evaluation else "training"
        return TrialPlan(rollout, group, sample, prompt, _seed(seed, purpose, sample), evaluation)

    return [
        [trial(group, member, prompt) for member in range(samples)]
        for group, prompt in enumerate(prompts, start=first_group)
    ]


def _seed(*parts: object) -> int:
    digest = hashlib.sha256(":".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4]) >> 1
