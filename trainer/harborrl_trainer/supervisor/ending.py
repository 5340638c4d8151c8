"""How a driver is ended when its pod is told to go: the plan, and the marks shared with the Ray container.

The preStop hook of the Ray container makes `terminating`, then waits for `released` or the end of the grace period.
"""

from dataclasses import dataclass
from pathlib import Path

DEFAULT_MARKS = Path("/run/harborrl")
STOP_SECONDS = 10.0
"""Time that Ray gets to end a driver: it sends SIGTERM, waits 3 s, sends SIGKILL."""


@dataclass(frozen=True)
class EndPlan:
    save: bool
    """Ask the driver to save and stop by itself."""
    wait_seconds: float
    """How long it may take to do so before Ray is told to stop it. The pod's own grace period is 30 s longer."""


def plan_end(*, job_exists: bool, driver_idle: bool, grace_seconds: float) -> EndPlan:
    """A job that is gone is cancelled at once; one that still exists will go on, so its work is saved first."""
    if driver_idle or not job_exists:
        return EndPlan(save=False, wait_seconds=0)
    return EndPlan(save=True, wait_seconds=grace_seconds)


class Marks:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def terminating(self) -> bool:
        return (self.folder / "terminating").exists()

    @property
    def released(self) -> bool:
        return (self.folder / "released").exists()

    def release(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "released").touch()
