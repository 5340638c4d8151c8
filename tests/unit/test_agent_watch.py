"""What trials wait for when they wait for a pod."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, override

import pytest

from harborrl_agent_server.sandboxes.cluster import Cluster, Query
from harborrl_agent_server.sandboxes.watch import PodView, PodWatch
from support.agent_http import eventually


async def test_a_change_that_comes_before_the_waiter_has_run_is_not_lost() -> None:
    view = PodView()
    change = asyncio.ensure_future(view.change())
    view.update({"metadata": {"name": "sb"}})
    async with asyncio.timeout(10):
        await change


async def test_a_waiter_sees_the_next_change_and_not_the_last() -> None:
    view = PodView()
    view.update({"metadata": {"name": "sb"}})
    change = asyncio.ensure_future(view.change())
    await asyncio.sleep(0)
    assert not change.done()
    view.update(None)
    async with asyncio.timeout(10):
        await change
    assert view.gone


class Api(Cluster):
    """Lists no pods; each watch tells `events` and ends."""

    def __init__(self, events: Sequence[dict[str, Any]] = ()) -> None:
        self.lists = self.watches = 0
        self._events = events

    @override
    async def request(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.lists += 1
        return {"items": [], "metadata": {"resourceVersion": "1"}}

    @override
    async def watch(self, path: str, query: Query) -> AsyncIterator[dict[str, Any]]:
        self.watches += 1
        for event in self._events:
            yield event


async def test_a_watch_that_ends_at_once_is_not_opened_again_and_again() -> None:
    api = Api()
    watch = PodWatch(api, "sandboxes", "app=a")
    watch.start()
    for _ in range(100):
        await asyncio.sleep(0)
    await watch.close()
    assert (api.lists, api.watches) == (1, 1)


async def test_an_event_that_nobody_knows_does_not_end_the_only_watch(caplog: pytest.LogCaptureFixture) -> None:
    api = Api([{"type": "ADDED"}])
    watch = PodWatch(api, "sandboxes", "app=a")
    watch.start()
    await eventually(lambda: api.lists > 1)
    await watch.close()
    assert "met what it does not know" in caplog.text
