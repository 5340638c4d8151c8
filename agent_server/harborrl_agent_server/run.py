"""One run: its request, its phase, and the first cause to end it."""

import asyncio
from dataclasses import dataclass, field
from uuid import uuid4

from harborrl_agent_server.contract import RunRequest, RunResponse
from harborrl_agent_server.outcomes import Cause
from harborrl_agent_server.phases import ENDS, Phase, may_follow
from harborrl_agent_server.trial import TrialRun


@dataclass(eq=False)
class Run:
    """One trial that was asked for. Times are of the server's monotonic clock, in seconds."""

    request: RunRequest
    agent: str
    id: str
    """As in `sessions.run_id`: of every run of one session the same."""
    registered: float
    cause: Cause | None = None
    cause_message: str = ""
    """For people; empty where the cause says it all."""
    phase: Phase = Phase.QUEUED
    entered: dict[Phase, float] = field(default_factory=dict)
    """When each phase began, in the order in which they were entered."""
    clients: int = 0
    """Requests that wait for the answer."""
    trial: TrialRun | None = None
    """While it lives."""
    trial_name: str | None = None
    answer: RunResponse | None = None
    key: str = field(default_factory=lambda: uuid4().hex)
    """Its own alone: a session whose run never began a trial may be asked for again."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.entered[self.phase] = self.registered

    @property
    def admitted(self) -> float | None:
        """When it got its slot."""
        return self.entered.get(Phase.STARTING)

    @property
    def finished(self) -> float | None:
        return next((moment for phase, moment in self.entered.items() if phase in ENDS), None)

    def phase_starts(self) -> dict[str, float]:
        """Seconds from when it was asked for to the beginning of each phase, in order."""
        return {phase.value: round(moment - self.registered, 3) for phase, moment in self.entered.items()}

    def enter(self, phase: Phase, now: float) -> None:
        """Go on to `phase`. A step that the table does not have changes nothing: hooks of Harbor's come late."""
        if may_follow(self.phase, phase):
            self.phase = phase
            self.entered.pop(phase, None)
            self.entered[phase] = now

    def cancel(self, cause: Cause, message: str = "") -> bool:
        """End the run; the first cause stands, later ones change nothing. Whether this was the first."""
        if self.cause is not None or self.ended.is_set():
            return False
        self.cause, self.cause_message = cause, message
        self._cancelled.set()
        return True

    def forget_the_work(self) -> None:
        """Of a run that is over, what is large or secret: only what is shown stays."""
        self.trial = None
        self.request = self.request.model_copy(update={"sampling_params": {}, "api_key": ""})

    async def answered(self) -> RunResponse:
        """The answer once the run is over. Who stops waiting changes nothing."""
        await self.ended.wait()
        if self.answer is None:
            raise RuntimeError(f"run {self.id} ended without an answer")
        return self.answer

    async def cancellation(self) -> None:
        await self._cancelled.wait()
