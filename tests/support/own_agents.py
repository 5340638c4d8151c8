"""Agents of somebody else's, as `--agent NAME=support.own_agents:Class` would name them."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any, ClassVar, override

import httpx
from harbor.agents.base import BaseAgent
from harbor.agents.options import AgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from harborrl_agent_server.errors import SandboxLostError


class Options(AgentOptions):
    turns: int = 1


class Asks(BaseAgent):
    """Runs what the model says, word for word."""

    options_model: ClassVar[type[AgentOptions] | None] = Options
    model_url: str

    @staticmethod
    @override
    def name() -> str:
        return "asks"

    @override
    def version(self) -> str:
        return "1"

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing to do."""

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        messages: list[dict[str, Any]] = [{"role": "user", "content": instruction}]
        async with httpx.AsyncClient(base_url=self.model_url, timeout=60) as model:
            for _ in range(self.options.turns):  # type: ignore[union-attr] # its own
                answer = await model.post("/chat/completions", json={"model": self.model_name, "messages": messages})
                answer.raise_for_status()
                messages.append(answer.json()["choices"][0]["message"])
                await environment.exec(messages[-1]["content"])
        (Path(self.logs_dir) / "kept").write_text(str(len(messages)))


class NeverAsks(Asks):
    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        raise KeyError("a mistake of its own")


class Leaves(Asks):
    """Does its work, and then ends more than itself."""

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await super().run(instruction, environment, context)
        raise SystemExit(3)


class Cancelled(Asks):
    """As one that waits for a task of its own which was cancelled."""

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await super().run(instruction, environment, context)
        raise asyncio.CancelledError


class TimedOut(Asks):
    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await super().run(instruction, environment, context)
        raise TimeoutError("a wait of its own")


class CancelsItself(Asks):
    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await super().run(instruction, environment, context)
        task = asyncio.current_task()
        if task is not None:
            task.cancel()
        await asyncio.sleep(60)


class LeavesTasks(Asks):
    """What it began goes on when it has ended."""

    kept: ClassVar[list[asyncio.Task[None]]] = []

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        await super().run(instruction, environment, context)
        self.kept.append(asyncio.create_task(self._go_on(environment)))

    async def _go_on(self, environment: BaseEnvironment) -> None:
        with contextlib.suppress(SandboxLostError):
            while True:
                await asyncio.sleep(0.1)
                await environment.exec("echo bye > greeting.txt")


class LeavesAtSetup(Asks):
    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        raise SystemExit(4)


class CancelledAtSetup(Asks):
    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        raise asyncio.CancelledError


class OtherNames(Asks):
    @override
    async def setup(self, sandbox: BaseEnvironment) -> None:  # Harbor names it environment
        """Nothing to do."""


class CannotBeMade(Asks):
    def __init__(self, *_: Any, **__: Any) -> None:
        raise SystemExit("no key in the environment")


class TellsItself(Asks):
    """Whoever wrote it meant another model."""

    @property
    @override
    def model_url(self) -> str:  # type: ignore[override] # the mistake
        return "http://model.example/v1"


class Unfinished(BaseAgent):
    pass


class Blocking(Asks):
    @override
    def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:  # type: ignore[override] # the mistake
        """No coroutine."""


class TakesLess(Asks):
    @override
    async def run(self, instruction: str) -> None:  # type: ignore[override] # the mistake
        """Without the environment."""


NO_CLASS = 3
