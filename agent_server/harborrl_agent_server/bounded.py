"""Work that outlives its caller: teardown that must finish but must not hold it for ever, and what runs alone."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

LOG = logging.getLogger(__name__)

_KEPT: set[asyncio.Task[Any]] = set()


async def finish(work: Coroutine[Any, Any, Any], limit_s: float) -> bool:
    """Run `work` to its end whatever happens to the caller; wait for it at most `limit_s`.

    True when it ended in time. Late work goes on alone. Its exception is raised to nobody, and is logged.
    A cancellation of the caller is passed on after the wait, never to the work.
    """
    task = keep(work)
    task.add_done_callback(lambda ended: _tell(ended, logging.INFO))
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
    """A task that the garbage collector cannot take while it runs. Who has it looks after its exception."""
    task = asyncio.ensure_future(work)
    _KEPT.add(task)
    task.add_done_callback(_KEPT.discard)
    return task


def alone(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """As `keep`, for what nobody waits for: if it fails, which it should not, the log has it at once."""
    task = keep(work)
    task.add_done_callback(lambda ended: _tell(ended, logging.ERROR))
    return task


def _tell(task: asyncio.Task[Any], level: int) -> None:
    if task.cancelled() or (error := task.exception()) is None:
        return
    what = getattr(task.get_coro(), "__qualname__", "a task")
    cause = error if level >= logging.ERROR else None
    LOG.log(level, "%s ended with %s: %s", what, type(error).__name__, error, exc_info=cause)
