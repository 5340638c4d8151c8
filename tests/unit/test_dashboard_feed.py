"""How often the runs are looked at: for whoever watches, and hardly at all for nobody."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import override

from harborrl_agent_server.dashboard.feed import Feed
from harborrl_agent_server.snapshot import Snapshot
from support.agent_http import eventually
from support.dashboard import Board


class Counting(Board):
    looks = 0

    @override
    async def look(self) -> tuple[str, Snapshot]:
        self.looks += 1
        return await super().look()


async def at_once(_: float) -> None:
    """A pause between two looks that takes no time."""
    await asyncio.sleep(0)


async def test_a_page_that_nobody_looks_at_is_hardly_kept_and_is_awake_as_soon_as_somebody_does() -> None:
    board = Counting()
    with ThreadPoolExecutor(1) as threads:
        feed = Feed(board, tuple, threads=threads, pause=at_once)
        following = asyncio.ensure_future(feed.follow())
        for _ in range(200):
            await asyncio.sleep(0)
        assert board.looks == 1
        page = feed.watch()
        await anext(page)
        await eventually(lambda: board.looks > 20)
        await page.aclose()
        seen = board.looks
        for _ in range(200):
            await asyncio.sleep(0)
        assert board.looks <= seen + 1
        feed.close()
        await asyncio.wait_for(following, 60)
