"""An agent's phase: the model answers while it lasts, and a trial whose sequence is full does not outlive its turn."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from harborrl_agent_server.errors import SANDBOX_FAULTS, ModelEndpointError
from harborrl_agent_server.gateway_session import ModelSession

LEAVE_SECONDS = 10.0
"""For an agent that was told that its sequence is full to write down what it did; then it is ended."""


async def episode(session: ModelSession, work: Coroutine[Any, Any, None], leave_s: float = LEAVE_SECONDS) -> None:
    """Run an agent with the model open to it, and close the model whatever happens.

    Raises `ModelEndpointError` when the endpoint broke, whatever the agent made of it, and when an agent of the
    sandbox ended before the policy had a single turn, which then cannot be to blame. A full sequence is a normal
    end, in which only a broken sandbox still counts; otherwise what the agent raises.
    """
    session.open()
    agent = asyncio.ensure_future(work)
    over = asyncio.ensure_future(session.over.wait())
    try:
        await asyncio.wait({agent, over}, return_when=asyncio.FIRST_COMPLETED)
        if session.failure is None and session.over.is_set():
            await asyncio.wait({agent}, timeout=leave_s)
    finally:
        session.close()
        over.cancel()
        agent.cancel()
        await asyncio.wait({agent})
        error = None if agent.cancelled() else agent.exception()
    if isinstance(error, SANDBOX_FAULTS):
        raise error
    if session.failure is not None:
        raise session.failure
    if session.inside and session.turns == 0 and session.end is None:
        raise ModelEndpointError(
            f"the agent ended without one turn ({error or 'no error'}): look at its output in the trial's folder, and "
            "whether its sandbox may reach the gateway"
        )
    if session.end is None:
        agent.result()
