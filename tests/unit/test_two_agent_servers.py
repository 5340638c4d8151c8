"""The trainer while one agent server replaces another: one slot budget for both, and no trial lost or sent twice."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from harborrl_trainer.rollout.agent_client import AgentClient
from harborrl_trainer.rollout.inflight import InFlight, width_for

TRIALS = 12


@dataclass
class Server:
    """Holds every trial until `ended` is set; refuses new ones while it leaves, as the contract says."""

    capacity: int
    leaving: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    running: set[int] = field(default_factory=set)
    done: list[int] = field(default_factory=list)

    async def run(self, number: int) -> httpx.Response:
        if self.leaving:
            return httpx.Response(503, headers={"Connection": "close", "X-HarborRL-Trial": "not-started"})
        self.running.add(number)
        await self.ended.wait()
        self.running.remove(number)
        self.done.append(number)
        return httpx.Response(200, json={"exit_status": "Submitted", "reward": 1.0, "eval_report": {"reward": 1.0}})

    def health(self) -> httpx.Response:
        load = {"capacity": self.capacity, "in_flight": len(self.running), "queued": 0}
        return httpx.Response(200, json={"status": "draining" if self.leaving else "ok", **load})


class Stage:
    """Two servers behind one name, and a trainer that starts all its trials at once."""

    def __init__(self, old: Server, new: Server) -> None:
        self.old, self.new = old, new
        self.serving = old
        self.widest = 0
        self.places = InFlight(old.capacity)
        self.client = AgentClient(
            "http://agents", ceiling_s=900, transport=httpx.MockTransport(self._answer), pause=self._pause
        )
        self.late_to_old = 0

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/health":
            return self.serving.health()
        # A pooled connection leads to the old server for a moment after the Service was switched.
        server, self.late_to_old = (self.old, self.late_to_old - 1) if self.late_to_old else (self.serving, 0)
        answer = asyncio.ensure_future(server.run(_number(request)))
        await asyncio.sleep(0)
        self.widest = max(self.widest, len(self.old.running) + len(self.new.running))
        return await answer

    async def _pause(self, _seconds: float) -> None:
        await asyncio.sleep(0)

    async def trial(self, number: int) -> str:
        async with self.places.place():
            return (await self.client.run({"instance_id": str(number)})).exit_status

    async def measure(self) -> None:
        """What follow_capacity does between two pauses."""
        await self.places.resize(width_for(await self.client.health(), self.places.held))

    def switch(self) -> None:
        self.serving, self.old.leaving, self.late_to_old = self.new, True, 2


def _number(request: httpx.Request) -> int:
    body: dict[str, Any] = json.loads(request.content)
    return int(body["instance_id"])


async def until_running(server: Server, count: int) -> None:
    async with asyncio.timeout(20):
        while len(server.running) < count:  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0)


@pytest.mark.parametrize(("before", "after"), [(4, 4), (4, 6)])
async def test_both_versions_together_run_no_more_trials_than_the_one_that_serves_has_slots(
    before: int, after: int
) -> None:
    stage = Stage(Server(before), Server(after))
    trials = [asyncio.ensure_future(stage.trial(number)) for number in range(TRIALS)]
    await until_running(stage.old, before)
    stage.switch()
    await stage.measure()
    assert stage.places.width == after
    await until_running(stage.new, after - before)
    assert len(stage.old.running) == before
    assert len(stage.new.running) == after - before
    stage.old.ended.set()
    await until_running(stage.new, after)
    await stage.measure()
    stage.new.ended.set()
    assert set(await asyncio.gather(*trials)) == {"Submitted"}
    assert stage.widest == after
    assert sorted([*stage.old.done, *stage.new.done]) == list(range(TRIALS))
    await stage.client.close()


async def test_a_trial_that_meets_the_leaving_server_is_asked_again_of_the_new_one_and_never_aborted() -> None:
    stage = Stage(Server(4), Server(4))
    stage.new.ended.set()
    stage.switch()
    assert [await stage.trial(number) for number in range(3)] == ["Submitted"] * 3
    assert (stage.old.done, stage.late_to_old) == ([], 0)
    assert stage.new.done == [0, 1, 2]
    await stage.client.close()
