"""The rollout function (`--rollout-function-path generate.RolloutFn`) of Miles' synchronous mode.

It adds the metrics and tells the trial log which rollout is collected and what of it is trained on. Nothing that keeps
samples honest is here, because the fully asynchronous mode has no such function.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from harborrl_trainer.miles import process
from harborrl_trainer.miles.metrics import aggregate
from harborrl_trainer.miles.process import GaveUp
from harborrl_trainer.rollout.groups import EveryGroupAborted
from harborrl_trainer.rollout.ledger import growth


def installed() -> Callable[[Any], Any]:
    """Not at import: Miles is there when it calls us."""
    module = import_module("miles.rollout.inference_rollout.inference_rollout_common")
    made: Callable[[Any], Any] = module.InferenceRolloutFn
    return made


class RolloutFn:
    """Miles' InferenceRolloutFn with an ear on it; every other attribute is that one's."""

    def __init__(self, input: Any, load: Callable[[], Callable[[Any], Any]] = installed) -> None:  # noqa: A002 - Miles'
        self._inner = load()(input)

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # not yet made: without this a failed construction would recurse
            raise AttributeError(name)
        return getattr(self._inner, name)

    async def __call__(self, input: Any) -> Any:  # noqa: A002 - Miles'
        """RolloutFnTrainInput | RolloutFnEvalInput -> the output of the same kind.

        Raises EveryGroupAborted when the rollout cannot be collected.
        """
        rollouts = process.current(process.from_environment)
        rollouts.records.begin(input.rollout_id, evaluation=bool(input.evaluation))
        before = dict(rollouts.ledger.counts())
        try:
            output = await self._inner(input)
        except GaveUp as error:
            raise EveryGroupAborted(str(error)) from error
        except BaseException:
            rollouts.records.failed("the rollout broke off")
            raise
        if input.evaluation:
            return output
        samples = list(_flat(output.samples))
        rollouts.records.collected({sample.group_index for sample in samples})
        reports = [(sample.metadata or {}).get("agent_metrics") for sample in samples]
        counted = growth(before, rollouts.ledger.counts())
        output.metrics = {
            **(output.metrics or {}),
            **aggregate(reports),
            **{f"harborrl/{name}": count for name, count in counted.items()},
        }
        return output


def _flat(samples: Iterable[Any]) -> Iterable[Any]:
    for sample in samples:
        if isinstance(sample, list):
            yield from _flat(sample)
        else:
            yield sample
