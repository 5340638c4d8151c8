"""Waiting for teardown that must finish but must not hold its caller for ever."""

import asyncio
from collections.abc import Coroutine
from typing import Any

_KEPT: set[asyncio.Task[Any]] = set()


async def finish(work: Coroutine[Any, Any, Any], limit_s: float) -> bool:
    """Run `work` to its end whatever happens to the caller; wait for it at most `limit_s`.

    True when it ended in time. Late work goes on alone, and its exception is nobody's.
    A cancellation of the caller is passed on after the wait, never to the work.
    """
    task = keep(work)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    cancelled: asyncio.CancelledError | None = None
    while not task.done() and loop.time() < deadline:
        try:
            await asyncio.wait({task}, timeout=deadline - loop.time())
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.done()


def keep(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task that the garbage collector cannot take while it runs."""
    task = asyncio.ensure_future(work)
    _KEPT.add(task)
    task.add_done_callback(_release)
    return task


def _release(task: asyncio.Task[Any]) -> None:
    _KEPT.discard(task)
    if not task.cancelled():
        task.exception()
