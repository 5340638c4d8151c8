"""The reward (`--custom-rm-path generate.reward_func`): what the trial's verdict says, and nothing else."""

from typing import Any

from harborrl_trainer.miles.samples import verdict_reward


async def reward_func(args: Any, samples: Any, **_: Any) -> "float | list[float]":  # noqa: ARG001 - Miles' signature
    """One sample or a list of them.

    A sample without a verdict is made ABORTED, so that Miles' filters drop its group; the 0.0 beside it only satisfies
    the signature. This is how a failed trial is kept out where our wrapper is not in front of Miles' generate.
    """
    if isinstance(samples, list):
        return [_reward(sample) for sample in samples]
    return _reward(samples)


def _reward(sample: Any) -> float:
    reward = verdict_reward(sample.metadata)
    if reward is not None:
        return reward
    sample.status = sample.Status.ABORTED
    sample.remove_sample = True
    return 0.0
