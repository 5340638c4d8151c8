"""What workers have counted, over all their lives: what a dead one had counted stays counted. Pure."""

from collections.abc import Callable
from functools import reduce


class Ledger[Counts]:
    """Sums of the server, which its counters are: one that fell would look to Prometheus as if it had begun anew."""

    def __init__(self, nothing: Counts, add: Callable[[Counts, Counts], Counts]) -> None:
        self._past = nothing
        self._add = add
        self._last: dict[int, tuple[int, Counts]] = {}

    def heard(self, worker: int, life: int, counts: Counts) -> None:
        """`counts` of a worker since its process began; the process that it is now is its `life`-th."""
        known = self._last.get(worker)
        if known is not None and life < known[0]:
            return  # late: its successor has been heard
        if known is not None and life > known[0]:
            self._past = self._add(self._past, known[1])
        self._last[worker] = (life, counts)

    def whole(self) -> Counts:
        """A worker that is silent counts with what it said last."""
        return reduce(self._add, (counts for _, counts in self._last.values()), self._past)
