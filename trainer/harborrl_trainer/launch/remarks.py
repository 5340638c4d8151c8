"""What is allowed and said: a function of the user's own in the place of HarborRL's, and what has no effect at all."""

from collections.abc import Iterator, Mapping
from typing import Any

from harborrl_trainer.launch.context import FUNCTIONS
from harborrl_trainer.launch.models import ModelType
from harborrl_trainer.launch.rules.rule import flag
from harborrl_trainer.launch.seam import Adjustment
from harborrl_trainer.launch.words import Argument, effective

NO_ABORTED = "miles.rollout.filter_hub.dynamic_sampling_filters.check_no_aborted"
"""Without it Miles' synchronous loop trains on aborted samples."""

_COUNTED = "replaces HarborRL's function: its counters, outcomes and second tries are gone with it"

LOST: Mapping[str, str] = {
    "custom_generate_function_path": _COUNTED,
    "custom_agent_function_path": _COUNTED,
    "custom_rm_path": (
        "replaces HarborRL's reward: the verifier's verdict and rollout.onAgentTimeout are trained on only if it reads"
        " them from the sample, and an aborted trial may get a number"
    ),
    "rollout_function_path": (
        "replaces HarborRL's rollout function: its metrics are gone, and lines of the trial log do not say in which"
        " rollout a trial was used"
    ),
    "custom_eval_rollout_log_function_path": (
        "replaces HarborRL's function: Miles counts an aborted trial of an evaluation as 0, or breaks on it, unless"
        " this one takes it out"
    ),
    "dynamic_sampling_filter_path": (
        "replaces Miles' check_no_aborted: in mode sync it must drop groups with aborted samples by itself"
    ),
}
"""Argument -> what is lost where another value than ours stands."""

_MEGATRONS = "has no effect: the loop is Miles', which does not look at it"
NO_EFFECT: Mapping[str, str] = {
    "rm_type": "has no effect beside --custom-rm-path, which is HarborRL's unless the job names another",
    "num_epoch": "has no effect beside --num-rollout, which is always given",
    "wandb_run_id": (
        "has no effect on the curve: Miles gives it to secondary processes alone. The run's id is WANDB_RUN_ID, in"
        " trainer.env or else the job's own"
    ),
    "exit_interval": _MEGATRONS,
    "exit_duration_in_mins": _MEGATRONS,
}
"""Argument -> why it does nothing."""

_OURS = frozenset({*FUNCTIONS.values(), NO_ABORTED})


def remarks(what: str, name: str, value: object) -> Iterator[Adjustment]:
    """At most one. `what` is the place for people, `name` the argument in snake_case."""
    if name in NO_EFFECT:
        yield Adjustment(what, str(value), NO_EFFECT[name])
    if name in LOST and value not in _OURS:
        yield Adjustment(what, str(value), LOST[name])


def over_architecture(model: ModelType | None, given: Mapping[str, Any]) -> Iterator[Adjustment]:
    """Of raw arguments that say something else of the model than its type."""
    known = effective(Argument(words[0], words[1:]) for words in model.arguments) if model else {}
    for name, value in given.items():
        if name in known and not _same(value, known[name]):
            reason = f"overrides {known[name]} of model.type {model.name if model else ''}: the weights have to fit it"
            yield Adjustment(flag(name), str(value), reason)


def _same(one: object, other: object) -> bool:
    try:
        return str(one) == str(other) or float(str(one)) == float(str(other))
    except ValueError:
        return False
