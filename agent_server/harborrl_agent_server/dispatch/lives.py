"""When a worker's process is given up, and when its next one is started. Pure: times are arguments, in seconds."""

from harborrl_agent_server.guard import HUNG_SECONDS

START_SECONDS = 180.0
"""To the first sign of life: as long as a server's startup probe waits."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Before a worker that died is started again."""

STEADY_SECONDS = 60.0
"""A worker that lived so long died of something else than its start."""


class Signs:
    """Of life, of one process."""

    def __init__(self, started: float) -> None:
        self._last = started
        self.limit_s = START_SECONDS
        """How long it may give none now."""

    def heard(self, now: float) -> None:
        self._last, self.limit_s = now, HUNG_SECONDS

    def are_missing(self, now: float) -> bool:
        return now - self._last > self.limit_s


def pause_after(lived: float, before: float) -> float:
    """`before`: the last pause. A start costs seconds of a processor, which the other workers need for their trials."""
    return FIRST_PAUSE if lived > STEADY_SECONDS else min(2 * before, LONGEST_PAUSE)
