"""Bounds on what Miles' generate may take outside the trial: to open its session, and to hand over its samples."""

import asyncio
from collections.abc import Callable
from typing import Any

from harborrl_trainer.miles.call import Call, NotWanted
from harborrl_trainer.rollout.agent_client import AgentServerError

Abandon = Callable[["asyncio.Future[Any]"], None]


class SessionServerSilent(AgentServerError):  # noqa: N818 - named after what happened
    """The session server opened no session, or handed over no samples, within its time."""


async def supervise(work: "asyncio.Future[Any]", call: Call, session_s: float, abandon: Abandon) -> Any:
    """The result of `work`, or its error; SessionServerSilent or NotWanted in its place.

    The trial itself is bounded by the client's ceiling. `abandon` takes a work that is not waited for any more: when it
    is cancelled, Miles' generate still tries to collect and to delete its session.
    """
    try:
        await _first_of(work, call, call.sent, session_s, "opened no session")
        await _first_of(work, call, call.answered, None, "")
        await _first_of(work, call, None, session_s, "handed over no samples")
    finally:
        if not work.done():
            abandon(work)
    return work.result()


async def _first_of(
    work: "asyncio.Future[Any]", call: Call, phase: "asyncio.Event | None", limit_s: "float | None", late: str
) -> None:
    """Returns when the work is done or the phase over."""
    events = [asyncio.ensure_future(event.wait()) for event in (phase, call.stopped) if event is not None]
    try:
        done, _ = await asyncio.wait({work, *events}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for event in events:
            event.cancel()
    if call.stopped.is_set() and not work.done():
        raise NotWanted(call.why_stopped)
    if not done:
        raise SessionServerSilent(f"the session server {late} within {limit_s:g} s")
