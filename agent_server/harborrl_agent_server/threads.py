"""Where blocking work goes: files, archives, imports. Never asyncio's own pool, which two cores give six threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

THREADS = 32
"""Their work waits for volumes, which do not get faster by more of them."""

POOL = ThreadPoolExecutor(THREADS, thread_name_prefix="blocking")


async def in_thread[**Given, Result](
    work: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
) -> Result:
    """What `work` returns or raises. A caller that is cancelled does not wait; the work goes on to its end."""
    return await asyncio.get_running_loop().run_in_executor(POOL, partial(work, *args, **kwargs))
