"""Who may act: at most one holder of a Lease at any moment, decided without believing anybody's clock.

A candidate measures on its own monotonic clock alone. It takes a lease that another one holds only after it has seen
that lease unchanged for `duration` seconds. The holder acts until `deadline` seconds after it *sent* its last write
that was answered. As `deadline` is shorter, a holder has stopped before anybody can follow, whatever was lost or
delayed in between; clocks may run up to a tenth apart in speed. Every write is against the version that was read, so
that a late one meets a conflict and changes nothing.
"""

from dataclasses import dataclass, replace
from enum import Enum
from math import inf


@dataclass(frozen=True)
class Timing:
    """Seconds."""

    duration: float = 15.0
    """How long a lease outlives its holder's last write."""
    deadline: float = 10.0
    """How long a holder acts on after its last answered write. A third less than `duration`: see above."""
    renew: float = 3.0
    """Between two writes of the holder: three may fail before it must stop."""
    retry: float = 1.0
    """Between two looks of a spare, and after an answer that was lost."""


@dataclass(frozen=True)
class Lease:
    """What the API server stores."""

    holder: str
    """Identity of one process life; empty: released."""
    version: str = ""
    """resourceVersion of what was read; empty: there is no such object yet."""
    transitions: int = 0
    """How often the holder changed."""


class Step(Enum):
    """What to ask of the API server next."""

    READ = "read"
    WRITE = "write"


class Refused(Enum):
    """Why a question has no answer."""

    CONFLICT = "conflict"
    """Somebody wrote since we read."""
    LOST = "lost"
    """No answer, or one that says nothing: a write may have been accepted, or may still be."""


class Candidate:
    """One process's view of the lease. Pure: `now` is its own monotonic clock, the transport is the caller."""

    def __init__(self, identity: str, timing: Timing = Timing()) -> None:
        self.identity = identity
        self.timing = timing
        self._lease = Lease("")
        self._seen_at = -inf
        self._is_current = False
        """False when what is stored may differ from `_lease` by a write of ours."""
        self._acts_until = -inf
        self._not_before = -inf
        """A lease that we had to create says nothing of who held a deleted one: we wait as long as that one may act."""
        self._asked_at = -inf
        self._was_lost = False

    @property
    def lease(self) -> Lease:
        """As last seen."""
        return self._lease

    def seconds_left(self, now: float) -> float:
        """How long this process may still act; not positive: it may not."""
        return self._acts_until - now

    def ask(self, now: float) -> tuple[Step, Lease]:
        """The next question and, for a write, what to store against `version`."""
        self._asked_at = now
        if not self._is_current or now < self._free_at():
            return Step.READ, self._lease
        mine = self._lease.holder == self.identity
        if not self._lease.version:
            self._not_before = now + self.timing.duration
        transitions = self._lease.transitions + (0 if mine else 1)
        return Step.WRITE, replace(self._lease, holder=self.identity, transitions=transitions)

    def hear(self, step: Step, answer: Lease | Refused, *, sent: float, now: float) -> None:
        """The answer to what was asked at `sent`."""
        self._was_lost = answer is Refused.LOST
        if isinstance(answer, Refused):
            self._is_current = False
            return
        if self._seen_at == -inf or answer.version != self._lease.version:
            self._seen_at = now
        self._lease, self._is_current = answer, True
        if step is Step.WRITE and sent >= self._not_before:
            self._acts_until = sent + self.timing.deadline

    def release(self) -> Lease | None:
        """Stop acting, at once; what to store so that the next one need not wait, None when we hold nothing."""
        self._acts_until = -inf
        mine = self._is_current and self._lease.holder == self.identity
        self._is_current = False
        return replace(self._lease, holder="") if mine else None

    def pause(self, now: float) -> float:
        """Seconds until the next question is due."""
        if self._was_lost:
            due = self._asked_at + self.timing.retry
        elif not self._is_current:
            due = now  # the first look, or a conflict: who won?
        elif self.seconds_left(now) > 0:
            due = self._asked_at + self.timing.renew
        else:
            due = min(self._asked_at + self.timing.retry, self._free_at())
        return max(due - now, 0.0)

    def _free_at(self) -> float:
        """When a write of ours may make us the holder."""
        if not self._lease.version or not self._lease.holder:
            return -inf
        return self._not_before if self._lease.holder == self.identity else self._seen_at + self.timing.duration
