"""The operator is killed between any two of its API calls, and a fresh one goes on as if nothing had happened.

Each write is swept, killed after the API server accepted it and before the answer came: a kill at a read, or before the
next write is sent, leaves the API server in that same state. One life has a kill in each of its stages, at the same
place; what is there at the end of a stage is compared with the undisturbed life, so that each kill is judged by itself.
"""

import asyncio
import dataclasses
import secrets
from collections import Counter
from typing import Any

import pytest

from harborrl_operator.cluster import Cluster
from harborrl_operator.reconcile import Reconciler
from harborrl_operator.transport import READS, Answer, Request, Send
from support import hrl
from support.simulated_life import JOB, STAGES, Life

pytestmark = pytest.mark.api

MOST_PASSES = 8
LIVES_AT_ONCE = 4


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """Dies at the n-th write of a stage, after it was accepted; notes the RayClusters that the server accepted."""

    def __init__(self) -> None:
        self.fatal = -1
        self.writes = 0
        self.is_dead = False
        self.made: list[str] = []

    def arm(self, fatal: int = -1) -> None:
        self.fatal, self.writes, self.is_dead = fatal, 0, False

    def wrap(self, send: Send) -> Send:
        async def mortal(request: Request) -> Answer:
            if self.is_dead:
                raise Killed
            answer = await send(request)
            if request.verb in READS:
                return answer
            if (request.verb, request.kind, answer.status) == ("create", "RayCluster", 201):
                self.made.append(str((request.body or {})["metadata"]["name"]))
            self.writes += 1
            if self.writes == self.fatal:
                self.is_dead = True
                raise Killed
            return answer

        return mortal


@dataclasses.dataclass
class Story:
    """What became of one life."""

    images: list[dict[str, Any]]
    """At the end of each stage."""
    writes: list[int]
    made: list[str]
    kills: int
    events: Counter[str]


class Operators:
    """One after the other: when one is killed, a fresh one goes on."""

    def __init__(self, life: Life, mortal: Mortal) -> None:
        self._life, self._mortal = life, mortal
        self.kills = 0
        self._start()

    def _start(self) -> None:
        self._operator = Reconciler(self._life.cluster.through(self._mortal.wrap), hrl.SETTINGS, self._life.now)

    async def look(self) -> bool:
        """One pass; whether it came to its end."""
        try:
            await self._operator.reconcile(self._life.namespace, JOB)
        except Killed:
            self.kills += 1
            self._mortal.arm()
            self._start()
            return False
        return True


async def live(cluster: Cluster, namespace: str, fatal: int = -1) -> Story:
    life, mortal = Life(cluster, namespace), Mortal()
    operators = Operators(life, mortal)
    await life.begin()
    images, writes = [], []
    for stage in STAGES:
        await stage.act(life)
        mortal.arm(fatal)
        for _ in range(MOST_PASSES):
            if await operators.look() and await stage.reached(life):
                break
        else:
            raise AssertionError(f"{stage.name} was not reached: {await life.status()}")
        writes.append(mortal.writes)
        while not await operators.look():
            pass
        images.append(await life.image())
    events = await cluster.find("Event", namespace, fields="involvedObject.kind=HarborRLJob")
    said = Counter(life.normal(f"{event['reason']}: {event['message']}") for event in events)
    return Story(images, writes, mortal.made, operators.kills, said)


async def test_a_kill_at_any_call_changes_nothing_about_the_rest_of_the_life(bare_cluster: Cluster) -> None:
    run = secrets.token_hex(3)
    undisturbed = await live(bare_cluster, f"sweep-{run}")
    assert undisturbed.made == [f"{JOB}-a1", f"{JOB}-a2"]
    assert undisturbed.kills == 0
    slots = asyncio.Semaphore(LIVES_AT_ONCE)

    async def disturbed(fatal: int) -> Story:
        async with slots:
            return await live(bare_cluster, f"sweep-{run}-{fatal}", fatal)

    places = range(1, max(undisturbed.writes) + 1)
    stories = await asyncio.gather(*map(disturbed, places))
    for place, story in zip(places, stories, strict=True):
        judge(place, story, undisturbed)
    assert sum(story.kills for story in stories) >= sum(undisturbed.writes)


def judge(place: int, story: Story, undisturbed: Story) -> None:
    assert story.made == undisturbed.made, place
    for stage, image, expected in zip(STAGES, story.images, undisturbed.images, strict=True):
        assert image.keys() == expected.keys(), (place, stage.name)
        for name, thing in image.items():
            assert thing == expected[name], (place, stage.name, name)
    # An event may be lost between the write of the status and its own; none is said twice.
    assert set(story.events.values()) == {1}, place
