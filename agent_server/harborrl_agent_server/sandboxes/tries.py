"""Connections tried from inside a pod, again and again while the network plugin follows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from harborrl_agent_server.errors import SandboxTransportError
from harborrl_agent_server.sandboxes import commands
from harborrl_agent_server.sandboxes.pod_exec import PodExec, Target
from harborrl_agent_server.sandboxes.probe import NO_TOOL, TRIED, TRY
from harborrl_agent_server.sandboxes.streams import Capture

FOLLOW_SECONDS = 30.0
"""How long the network plugin may take to let a pod out, or to cut one off."""

PAUSE_SECONDS = 0.5

BLOCKED_TIMES = 2
"""Tries in a row that must fail: one may be lost by itself."""

Reach = Callable[[], Awaitable[str | None]]
"""One try: the address that answered."""


class NoToolError(Exception):
    """The image has nothing that connects."""


async def reached(way_in: PodExec, pod: Target) -> str | None:
    """The first address that a pod connects to, once tried."""
    out = Capture(4096)
    argv = [commands.SHELL, "-c", TRY]
    code = await way_in.stream(pod, argv, stdin=None, stdout=out, stderr=Capture(4096))
    if code == NO_TOOL:
        raise NoToolError
    if code not in TRIED:
        raise SandboxTransportError(f"a connection was tried with exit code {code}")
    return out.text().strip() or None


async def until_open(reach: Reach, follow_s: float) -> str | None:
    """The first address reached within the limit."""
    async for found in tries(reach, follow_s):
        if found is not None:
            return found
    return None


async def until_cut(reach: Reach, follow_s: float) -> str | None:
    """None when tries fail and go on failing within the limit, else what was reached last."""
    blocked = 0
    last = None
    async for found in tries(reach, follow_s):
        blocked, last = (blocked + 1, last) if found is None else (0, found)
        if blocked >= BLOCKED_TIMES:
            return None
    return last


async def tries(reach: Reach, follow_s: float) -> AsyncIterator[str | None]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + follow_s
    while True:
        yield await reach()
        if loop.time() > deadline:
            return
        await asyncio.sleep(PAUSE_SECONDS)
