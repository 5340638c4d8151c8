"""A question to each worker, and their answers within a bounded time whatever state they are in."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from harborrl_agent_server.dispatch.workers import LOOK, Child, Workers


@dataclass(frozen=True)
class Answer:
    """What one worker said."""

    worker: int
    life: int
    """Which of its processes said it."""
    text: str | None
    """None: nothing, or not in time."""
    is_gone: bool = False
    """Nobody listens there: what that process was doing has ended with it."""


async def told(workers: Workers, path: str) -> list[Answer]:
    return list(await asyncio.gather(*(asked(child, path) for child in workers.children)))


async def asked(child: Child, path: str, headers: Mapping[str, str] | None = None) -> Answer:
    life, index = child.life, child.worker.index
    try:
        answer = await child.client.get(path, headers=headers, timeout=LOOK)
    except httpx.HTTPError as error:
        return Answer(index, life, None, is_gone=isinstance(error, httpx.ConnectError))
    return Answer(index, life, answer.text if answer.status_code == httpx.codes.OK and child.life == life else None)


async def any_is_up(workers: Workers) -> bool:
    """As soon as one is; no one that hangs is waited for then."""
    looks = [asyncio.ensure_future(child.is_up()) for child in workers.children]
    try:
        for look in asyncio.as_completed(looks):
            if await look:
                return True
        return False
    finally:
        for look in looks:
            look.cancel()
