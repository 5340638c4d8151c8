"""A group is all trials of one prompt in one rollout. GRPO compares within it, so it is kept whole or dropped whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from harborrl_trainer.rollout.outcomes import HOPELESS
from harborrl_trainer.rollout.trials import Payload, TrialEnd, TrialHistory


class EveryGroupAborted(Exception):  # noqa: N818 - named after what happened
    """Not one group of a rollout survived: collecting again would meet the same wall."""


class EveryGroupHopeless(EveryGroupAborted):
    """Each group has a trial whose outcome no retry heals: the data, the tasks or the agent's name are wrong."""


@dataclass(frozen=True)
class Group(Generic[Payload]):  # noqa: UP046 - Python 3.10 syntax
    id: int
    """Counts groups over the whole run."""
    instance_id: str
    trials: Sequence[TrialHistory[Payload]]

    @property
    def ends(self) -> list[TrialEnd[Payload]]:
        return [trial.final for trial in self.trials]

    @property
    def aborted(self) -> list[TrialEnd[Payload]]:
        return [end for end in self.ends if end.verdict.status == "aborted"]

    @property
    def rewards(self) -> list[float]:
        return [end.verdict.reward for end in self.ends if end.verdict.reward is not None]

    @property
    def has_spread(self) -> bool:
        """Without it every advantage is zero and the group teaches nothing."""
        return max(self.rewards, default=0.0) > min(self.rewards, default=0.0)


def drop_reason(group: Group[Payload]) -> str:
    """Why the group cannot be trained on; empty when it is kept."""
    if not group.aborted:
        return ""
    return f"group has {len(group.aborted)} of {len(group.trials)} aborted: {group.aborted[-1].verdict.cause}"


def keep_whole(groups: Sequence[Group[Payload]]) -> list[Group[Payload]]:
    """The groups to train on. Raises EveryGroupAborted, with the last cause, when none is left."""
    kept = [group for group in groups if not group.aborted]
    if groups and not kept:
        hopeless = [[end for end in group.aborted if end.outcome in HOPELESS] for group in groups]
        if all(hopeless):
            raise EveryGroupHopeless(
                f"all {len(groups)} groups had a trial that cannot be run; "
                f"last cause: {hopeless[-1][-1].verdict.cause} (instance {groups[-1].instance_id})"
            )
        last = groups[-1].aborted[-1]
        raise EveryGroupAborted(
            f"all {len(groups)} groups had an aborted trial, each after one re-run where time allowed; "
            f"last cause: {last.verdict.cause} (instance {groups[-1].instance_id})"
        )
    return kept
