"""What of an evaluation counts (`--custom-eval-rollout-log-function-path`): one function for all modes of Miles."""

from collections.abc import Mapping
from typing import Any


def only_scored(_rollout_id: int, args: Any, data: dict[str, Any], _extra_metrics: Any = None) -> bool:
    """Takes the aborted trials, which have no reward, out of `data`: Miles counts them as 0, or breaks on them.

    With `--log-passrate` the other trials of the same prompt go too, as that needs whole prompts. A set without any
    reward goes as a whole. Returns False: Miles goes on and logs what is left. Its dumps are written before, with all.
    """
    by_prompt = bool(getattr(args, "log_passrate", False))
    size = max(1, int(getattr(args, "n_samples_per_eval_prompt", None) or 1)) if by_prompt else 1
    for name in list(data):
        left = _without_missing(data[name], size)
        if left["rewards"]:
            data[name] = left
        else:
            del data[name]
    return False


def _without_missing(data: Mapping[str, Any], size: int) -> dict[str, Any]:
    rewards = data["rewards"]
    scored = [all(reward is not None for reward in rewards[at : at + size]) for at in range(0, len(rewards), size)]
    columns = {"rewards", "truncated", "samples"} & set(data)
    if any(len(data[column]) != len(rewards) for column in columns):
        return dict(data)
    return {
        key: [one for at, one in enumerate(value) if scored[at // size]] if key in columns else value
        for key, value in data.items()
    }
