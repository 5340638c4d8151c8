"""Calls on volumes that may hang for ever, as a dead file server makes them: made in a thread, waited for a while."""

import asyncio
from collections.abc import Callable

TIMEOUT_SECONDS = 10.0


async def call[**P, T](function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`function`'s result, or an OSError: its own, or TimeoutError after 10 s, when its thread is left to its fate."""
    return await asyncio.wait_for(asyncio.to_thread(function, *args, **kwargs), TIMEOUT_SECONDS)
