"""A group is all trials of one prompt in one rollout. GRPO compares within it, so it is kept whole or dropped whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

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


def drop_cause(group: Group[Payload]) -> str:
    """The outcome that cost the group, one word for counting; empty when it is kept."""
    return group.aborted[-1].outcome if group.aborted else ""


def keep_whole(groups: Sequence[Group[Payload]]) -> list[Group[Payload]]:
    """The groups to train on. Raises EveryGroupAborted, with the last cause, when none is left."""
    kept = [group for group in groups if not group.aborted]
    if groups and not kept:
        raise give_up([Drop.of(group) for group in groups])
    return kept


@dataclass(frozen=True)
class Drop:
    """What is remembered of a dropped group: not its samples."""

    instance_id: str
    cause: str
    """Of its last aborted trial."""
    hopeless: str = ""
    """Cause of a trial that no retry heals; empty without one."""

    @classmethod
    def of(cls, group: Group[Payload]) -> "Drop":
        hopeless = [end.verdict.cause for end in group.aborted if end.outcome in HOPELESS]
        return cls(group.instance_id, group.aborted[-1].verdict.cause, hopeless[-1] if hopeless else "")


def give_up(drops: Sequence[Drop]) -> EveryGroupAborted:
    """The error that ends a run whose groups were all dropped; `drops` is not empty."""
    last, count = drops[-1], len(drops)
    if all(drop.hopeless for drop in drops):
        return EveryGroupHopeless(
            f"all {count} groups had a trial that cannot be run; "
            f"last cause: {last.hopeless} (instance {last.instance_id})"
        )
    return EveryGroupAborted(
        f"all {count} groups had an aborted trial, each after one re-run where time allowed; "
        f"last cause: {last.cause} (instance {last.instance_id})"
    )


class Patience:
    """The same rule for an engine that refills its batch until it is full, and would therefore never come to an end.

    `groups` dropped ones in a row, without a kept one between them, end the run; 0 never does.
    """

    def __init__(self, groups: int) -> None:
        self._groups = groups
        self._drops: list[Drop] = []

    def after(self, group: Group[Payload]) -> "EveryGroupAborted | None":
        """The error to end the run with, or None."""
        if not group.aborted:
            self._drops.clear()
            return None
        self._drops.append(Drop.of(group))
        return give_up(self._drops) if 0 < self._groups <= len(self._drops) else None


Entry = TypeVar("Entry")


class OpenGroups(Generic[Entry]):  # noqa: UP046 - Python 3.10 syntax
    """Groups whose trials end one by one, for an engine that never sees a group as a whole."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._open: dict[int, list[Entry]] = {}

    def add(self, group_id: int, entry: Entry) -> "list[Entry] | None":
        """All entries of the group when this is its last. A group that is run again begins anew."""
        entries = self._open.setdefault(group_id, [])
        entries.append(entry)
        return self._open.pop(group_id) if len(entries) >= self._size else None

    def close(self) -> list[list[Entry]]:
        """The groups that will not be whole any more, as far as they came."""
        left = list(self._open.values())
        self._open.clear()
        return left
