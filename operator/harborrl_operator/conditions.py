"""Pure: conditions keep their transition time until their status flips, carry the generation, and stay in one order."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from harborrl_operator.constants import ConditionType, Reason
from harborrl_operator.models.status import Condition

MESSAGE_LIMIT = 1024
"""Longer messages keep head and tail: status is read by people and stored in etcd."""

Truth = Literal["True", "False", "Unknown"]


@dataclass(frozen=True)
class Verdict:
    """Why something is not as it should be."""

    reason: Reason
    message: str


def shorten(message: str) -> str:
    if len(message) <= MESSAGE_LIMIT:
        return message
    half = (MESSAGE_LIMIT - 5) // 2
    return f"{message[:half]} ... {message[-half:]}"


class Conditions:
    """The conditions of one pass, begun from the previous ones: a second word within the pass is no transition."""

    def __init__(self, previous: Iterable[Condition], generation: int, now: str) -> None:
        self._by_type = {condition.type: condition for condition in previous}
        self._before = dict(self._by_type)
        self._generation = generation
        self._now = now

    def set(self, kind: ConditionType, status: Truth, reason: Reason, message: str = "") -> None:
        before = self._before.get(kind)
        self._by_type[kind] = Condition(
            type=kind,
            status=status,
            reason=reason.value,
            message=shorten(message),
            last_transition_time=before.last_transition_time if before and before.status == status else self._now,
            observed_generation=self._generation,
        )

    def get(self, kind: ConditionType) -> Condition | None:
        return self._by_type.get(kind)

    def listed(self) -> list[Condition]:
        return [self._by_type[kind] for kind in ConditionType if kind in self._by_type]

    def restamp(self, kind: ConditionType) -> None:
        """Same verdict for the current generation."""
        self._by_type[kind] = self._by_type[kind].model_copy(update={"observed_generation": self._generation})
