"""Reads of volumes that may hang: never in the event loop, never for ever, and never before those of other trials.

A hung NFS server holds a thread for as long as it pleases. These are threads of their own: archives and images that
live trials wait for go on in `threads.POOL`.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from harborrl_agent_server.errors import HostError

THREADS = 16

POOL = ThreadPoolExecutor(THREADS, thread_name_prefix="volumes")


class EndedMeanwhileError(Exception):
    """The run was ended from outside before its task was read."""


async def read[Result](
    work: Callable[[], Result],
    what: str,
    *,
    limit_s: float,
    ended: Coroutine[Any, Any, None],
    late: Callable[[Result], object] = lambda _: None,
) -> Result:
    """What `work` returns or raises, in the caller's context.

    Raises `EndedMeanwhileError` once `ended` has come to its end, and `HostError`, naming `what`, after `limit_s`
    seconds. Work that nobody waits for any more goes on; `late`, in its thread, takes away what it has made then.
    """
    job = POOL.submit(partial(contextvars.copy_context().run, work))
    reading, ending = asyncio.wrap_future(job), asyncio.ensure_future(ended)
    first: set[asyncio.Future[Any]] = {reading, ending}
    try:
        await asyncio.wait(first, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_ended = ending.done()
        ending.cancel()
        if not reading.done():
            reading.cancel()
            job.add_done_callback(partial(clear, late=late))
    if reading.done() and not reading.cancelled():
        return reading.result()
    if is_ended:
        raise EndedMeanwhileError(what)
    raise HostError(
        f"{what} could not be read within {limit_s:g} s: its volume hangs, which says nothing about the task; "
        "look at the server of the volume (NFS?) and its mount"
    )


def clear[Result](job: Future[Result], late: Callable[[Result], object]) -> None:
    if not job.cancelled() and job.exception() is None:
        late(job.result())
