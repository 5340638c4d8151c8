"""How a server that was told to stop leaves: by cancelling its trials at once, or by letting the last one end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from harborrl_agent_server.bounded import alone
from harborrl_agent_server.runs import Runs, wait_ended
from harborrl_agent_server.scope import Standing
from harborrl_agent_server.settings import Settings
from harborrl_agent_server.warmth import KeepsWarm

LOG = logging.getLogger(__name__)

TRIALS_SHARE = 0.7
"""Of the grace period: for cancelled trials to end; the rest is for what they leave on the cluster."""

LOOK_SECONDS = 4.0
"""Between two looks whether the job is still there: with the grace period below the 30 s that its deletion may cost."""

ASK_SECONDS = 8.0
"""For an API server that is busy to say why we were told to stop; the grace period is running meanwhile."""

Ask = Callable[[], Awaitable[Standing]]


async def leave(runs: Runs, standing: Ask, settings: Settings, ask_s: float = ASK_SECONDS) -> None:
    """Returns when every run has been answered, within the time that the server's standing allows."""
    runs.draining = True
    if isinstance(runs.provider, KeepsWarm):
        alone(runs.provider.cool())
    found = await known(standing, ask_s)
    if found is Standing.REPLACED and settings.drain_s > 0:
        LOG.info("replaced: new runs are refused; %d live ones may take %.0f s", len(runs.live), settings.drain_s)
        await drain(runs, standing, settings.drain_s)
    LOG.info("leaving (%s): %d live runs are cancelled, within %.0f s", found.value, len(runs.live), settings.grace_s)
    await runs.stop(settings.grace_s * TRIALS_SHARE)


async def known(standing: Ask, limit_s: float) -> Standing:
    """The first answer that says something; not knowing is what remains of an API server that stays silent."""
    found = Standing.UNKNOWN
    try:
        async with asyncio.timeout(limit_s):
            while (found := await standing()) is Standing.UNKNOWN:  # noqa: ASYNC110 - the API server has no event for it
                await asyncio.sleep(1)
    except TimeoutError:
        LOG.warning("why this server is told to stop cannot be learned; its trials are cancelled")
    return found


async def drain(runs: Runs, standing: Ask, limit_s: float, look_s: float = LOOK_SECONDS) -> None:
    """Returns when the last live run has ended, the time is spent, or the job is gone."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    while runs.live and loop.time() < deadline:
        await wait_ended(tuple(runs.live), min(look_s, deadline - loop.time()))
        if await standing() is Standing.ORPHANED:
            LOG.info("the job is gone: %d trials need not end", len(runs.live))
            return
