"""What of a trial's budgets is left for the start of a sandbox: their sum holds whatever the trial does."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from harborrl_agent_server.settings import Budgets

SAY_SECONDS = 1.0
"""For a start whose time is over to say what it waited for, before it is broken off without a reason."""


@dataclass(frozen=True)
class Spending:
    """Of one trial that has begun."""

    budgets: Budgets = field(default_factory=Budgets)
    clock: Callable[[], float] = time.monotonic
    began: float = field(default_factory=time.monotonic)
    """On that clock, in seconds."""

    def start_s(self, *, is_first: bool) -> float:
        """For a sandbox to be ready.

        One that a verifier has for itself comes on top of the first: it has what the phases before grading have left
        over of their budgets, at most as much as the first one had, and nothing (0 or less) when they left nothing.
        """
        whole = self.budgets.environment_start_s
        if is_first:
            return whole
        kept = self.budgets.verifier_s + self.budgets.cleanup_s + SAY_SECONDS
        return min(whole, self.began + self.budgets.total() - kept - self.clock())
