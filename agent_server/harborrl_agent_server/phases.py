"""The states of a run and the steps between them: a table."""

from enum import StrEnum


class Phase(StrEnum):
    """Where a run is. The first group is a trial's own way, the second one that was ended from outside."""

    QUEUED = "queued"
    STARTING = "starting"
    """Its sandbox is being made."""
    SETUP = "setup"
    RUNNING = "running"
    """The agent acts: the phase that the agent's time-out bounds."""
    COLLECTING = "collecting"
    """The agent has ended; logs and artifacts are fetched."""
    GRADING = "grading"
    STOPPING = "stopping"

    CANCELLING = "cancelling"
    """Harbor was told to end the trial, and tears it down."""
    FORCING = "forcing"
    """Harbor did not come back in time; the sandbox is removed behind its back."""

    DONE = "done"
    LEAKED = "leaked"
    """Answered and its slot free, but something of it is left; the reaper has it."""


OWN_WAY = (
    Phase.QUEUED,
    Phase.STARTING,
    Phase.SETUP,
    Phase.RUNNING,
    Phase.COLLECTING,
    Phase.GRADING,
    Phase.STOPPING,
)

ENDS = frozenset({Phase.DONE, Phase.LEAKED})

STEPS: dict[Phase, frozenset[Phase]] = {
    **{
        phase: frozenset({*OWN_WAY[index + 1 :], Phase.CANCELLING, *ENDS})
        for index, phase in enumerate(OWN_WAY)
        if phase is not Phase.STOPPING
    },
    # A verifier with a sandbox of its own grades after the agent's sandbox was stopped.
    Phase.STOPPING: frozenset({Phase.GRADING, Phase.CANCELLING, *ENDS}),
    Phase.CANCELLING: frozenset({Phase.FORCING, *ENDS}),
    Phase.FORCING: ENDS,
    Phase.LEAKED: frozenset({Phase.DONE}),
    Phase.DONE: frozenset(),
}
"""From each phase to those that may follow it. A trial may skip what it does not need."""


def may_follow(earlier: Phase, later: Phase) -> bool:
    return later in STEPS[earlier]
