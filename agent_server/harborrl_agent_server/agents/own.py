"""Agents of classes that `--agent NAME=pkg.mod:Class` names: checked before anything listens, and under our rules.

What such a class is told, and what counts as whose fault, is in docs/agent-server.md ("Agents of your own").
"""

import asyncio
import contextlib
import inspect
from collections.abc import Iterator
from typing import Any, override

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from harborrl_agent_server.errors import InvalidAgentError, StartupError, is_host_fault
from harborrl_agent_server.gateway_episode import episode
from harborrl_agent_server.scope import AGENTS_TIME, CURRENT, AgentsTime

CALLED = {"setup": ("environment",), "run": ("instruction", "environment", "context")}
"""Of Harbor's interface, in this order."""


class AgentLeftError(Exception):
    """An agent raised what others take for something else: an exit, a cancellation, a `TimeoutError`."""


class Own(BaseAgent):
    """Before the class of somebody else: opens the model for its phase, and ends it with the sequence."""

    model_url: str
    """While `run` lasts: an OpenAI base URL of this trial's model, which takes any key."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Raises `InvalidAgentError`: for Harbor it would be the task that cannot be used."""
        try:
            super().__init__(*args, **kwargs)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            if is_host_fault(error):
                raise
            said = f"{type(error).__name__}: {error}"
            raise InvalidAgentError(f"the agent's class {type(self).__qualname__} cannot be made: {said}") from error

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        with contained():
            await super().setup(environment)  # type: ignore[safe-super] # the class behind this

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        scope = CURRENT.get()
        session = scope.session()
        if scope.gateway is None:
            raise TypeError("this trial has no gateway")
        time = AgentsTime()
        with scope.gateway.admitted(session) as url:

            async def work() -> None:
                AGENTS_TIME.set(time)
                with contained():
                    self.model_url, self.model_name = url, session.upstream.model  # a class may refuse what is set
                    await super(Own, self).run(instruction, environment, context)  # type: ignore[safe-super] # as above

            try:
                await episode(session, work())
            finally:
                time.is_over = True
                context.n_input_tokens = session.prompt_tokens
                context.n_output_tokens = session.completion_tokens


@contextlib.contextmanager
def contained() -> Iterator[None]:
    """What a class raises, as an error of its trial alone.

    An exit would end the event loop and every other trial with it; a task that is cancelled is one that we cancelled;
    and of a `TimeoutError` Harbor would say that the phase's time is over.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise AgentLeftError("CancelledError, and nobody had cancelled the agent") from error
    except (SystemExit, KeyboardInterrupt, TimeoutError) as error:
        raise AgentLeftError(f"{type(error).__name__}: {error}") from error


def attribute(name: str) -> str:
    """Where in this module Harbor finds the agent of that name."""
    return f"agent_{name}"


def place(name: str) -> str:
    return f"{__name__}:{attribute(name)}"


def take(name: str, import_path: str, found: Any) -> type[BaseAgent]:
    """Make the class an agent that trials may run; raises `StartupError` for what is no whole agent."""
    said = f"--agent {name}={import_path}"
    if not (inspect.isclass(found) and issubclass(found, BaseAgent)):
        raise StartupError(f"{said} is no subclass of harbor.agents.base.BaseAgent")
    if inspect.isabstract(found):
        raise StartupError(f"{said} lacks {', '.join(sorted(found.__abstractmethods__))}: name a whole agent")
    for method, arguments in CALLED.items():
        if not inspect.iscoroutinefunction(getattr(found, method)):
            raise StartupError(f"{said}: {method} is no coroutine, as Harbor's own is")
        try:
            inspect.signature(getattr(found, method)).bind(None, *arguments)
        except TypeError as error:
            raise StartupError(f"{said}: {method} does not take {', '.join(arguments)}: {error}") from error
    made: type[BaseAgent] = type(f"Own{found.__name__}", (Own, found), {"__module__": __name__})
    globals()[attribute(name)] = made
    return made
