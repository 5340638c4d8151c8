"""Counters of a process: every trial that began is counted once more when it ends, and every dropped group by cause."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from harborrl_trainer.rollout.trials import TrialEnd, TrialHistory


class Ledger:
    """`started` = completed + truncated + aborted + in flight, at every moment. Counts only grow."""

    def __init__(self) -> None:
        self.started = 0
        self.reruns = 0
        self.groups_kept = 0
        self.statuses: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()
        """Aborted trials by outcome: a vocabulary of a few dozen words, never a message."""
        self.dropped: Counter[str] = Counter()
        """Groups by the outcome that cost them."""

    @property
    def ended(self) -> int:
        return sum(self.statuses.values())

    @property
    def in_flight(self) -> int:
        return self.started - self.ended

    def start(self) -> None:
        self.started += 1

    def end(self, history: TrialHistory[Any]) -> None:
        self.reruns += history.replaced is not None
        self._end(history.final)

    def _end(self, end: TrialEnd[Any]) -> None:
        self.statuses[end.verdict.status] += 1
        if end.verdict.status == "aborted":
            self.causes[end.outcome] += 1

    def group(self, cause: str) -> None:
        """A group is whole; `cause` is the outcome that dropped it, empty for one that is kept."""
        if cause:
            self.dropped[cause] += 1
        else:
            self.groups_kept += 1

    def counts(self) -> Mapping[str, int]:
        """All counters flat, as metric names."""
        return {
            "trials_started": self.started,
            **{f"trials_{status}": self.statuses[status] for status in ("completed", "truncated", "aborted")},
            "trials_rerun": self.reruns,
            "groups_kept": self.groups_kept,
            "groups_dropped": sum(self.dropped.values()),
            **{f"aborted/{cause}": count for cause, count in sorted(self.causes.items())},
            **{f"dropped/{cause}": count for cause, count in sorted(self.dropped.items())},
        }


def growth(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """What was counted between two looks."""
    return {name: count - before.get(name, 0) for name, count in now.items()}
