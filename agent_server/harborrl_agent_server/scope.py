"""What the parts of one trial share although Harbor constructs them: carried by a context variable, not by files."""

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from harbor.models.trial.config import EnvironmentConfig

from harborrl_agent_server.agents.tools import Part
from harborrl_agent_server.gateway import Gateway
from harborrl_agent_server.gateway_session import ModelSession
from harborrl_agent_server.spending import Spending
from harborrl_agent_server.task_users import Users


class Sandbox(Protocol):
    """What the runner needs from a sandbox beyond Harbor's own interface."""

    left: bool
    """Whether the last try to remove it failed, or still goes on."""

    def agent_begins(self) -> None:
        """A phase of the agent's begins."""

    def agent_ended(self, folders: Sequence[str]) -> None:
        """It is over; Harbor will download `folders` next."""

    async def quiesce(self) -> None:
        """End every process of the agent, so that none can touch the grading."""

    async def destroy(self) -> None:
        """Remove the sandbox whatever the trial is doing; bounded, and harmless when it is gone already."""


class Standing(Enum):
    """What is left of that to which this server belongs, when it is told to stop."""

    REPLACED = "replaced"
    """Its Deployment is gone and its job is not: another version takes the new trials."""
    ORPHANED = "orphaned"
    """Its job is gone: nobody waits for a trial."""
    ALONE = "alone"
    """Only its pod is ended, or it serves no job; how much time is left is not known."""
    UNKNOWN = "unknown"
    """The API server does not answer, or may not be asked."""


class SandboxProvider(Protocol):
    """Where sandboxes come from: checked and opened once, asked for a Harbor environment per trial."""

    async def open(self) -> None:
        """Check what can be checked, sweep what a killed predecessor left; raises `StartupError`."""

    async def close(self) -> None:
        """Remove all sandboxes of this server."""

    async def standing(self) -> Standing:
        """Looked up now; never raises, and takes a few seconds at most."""

    def environment(self) -> EnvironmentConfig:
        """Harbor's environment config of one trial."""


@runtime_checkable
class TellsNetwork(Protocol):
    """A provider that restricts networks and knows whether the restriction holds."""

    def network_policies(self) -> str:
        """For `/health`."""


@dataclass
class TrialScope:
    """The running trial, as seen by its sandbox and its agent."""

    run_id: str
    provider: SandboxProvider
    model: ModelSession | None = None
    """None for an agent that asks no model."""
    gateway: Gateway | None = None
    """Lets an agent inside the sandbox reach `model`."""
    tools: Part | None = None
    """What of the tools bundle the agent needs."""
    users: Users = field(default_factory=Users)
    """As whom the task's commands run."""
    sandboxes: list[Sandbox] = field(default_factory=list)
    """The agent's, and behind it those that its verifiers had for themselves."""
    ready: set[Sandbox] = field(default_factory=set)
    """Of those, which have started."""
    spending: Spending = field(default_factory=Spending)
    fault: Exception | None = None
    """First sandbox or transport error of the trial: Harbor wraps or swallows some of them."""
    progress: dict[str, Any] = field(default_factory=dict)
    """What the agent has done so far; survives an agent that is cut off."""
    warnings: list[str] = field(default_factory=list)

    def reachable(self) -> str | None:
        """The address that the sandbox must reach whatever its network policy says, `http://IP:PORT`; None: none."""
        inside = self.model is not None and self.model.inside
        return self.gateway.address if self.gateway is not None and inside else None

    def never_asked(self) -> bool:
        """The agent is in the sandbox, and no request of it has reached the model."""
        return self.model is not None and self.model.inside and self.model.asked == 0

    def start_s(self, sandbox: Sandbox) -> float:
        """Seconds from now in which it must be ready."""
        return self.spending.start_s(is_first=sandbox not in self.sandboxes[1:])

    def session(self) -> ModelSession:
        if self.model is None:
            raise TypeError("this trial has no model session")
        return self.model

    def blame(self, error: Exception) -> None:
        if self.fault is None:
            self.fault = error


CURRENT: ContextVar[TrialScope] = ContextVar("harborrl_trial_scope")


@dataclass
class AgentsTime:
    """Of one agent's run, and of the tasks that it begins."""

    is_over: bool = False


AGENTS_TIME: ContextVar[AgentsTime | None] = ContextVar("harborrl_agents_time", default=None)
"""Set where an agent of somebody else's runs: asyncio's tasks inherit it, and may go on when their agent has ended."""
