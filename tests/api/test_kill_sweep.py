"""The operator is killed between any two of its API calls, and a fresh one goes on as if nothing had happened.

Only writes are swept, each killed before it is sent and after it was accepted: a kill at a read leaves the API server
as the write before it did. One life has a kill in each of its stages, at the same place; what is there at the end of a
stage is compared with the undisturbed life, so that each kill is judged by itself.
"""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from devcluster.controlplane import RunningControlPlane

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
    """Dies at the n-th write of a stage, before it is sent or after it was accepted."""

    def __init__(self) -> None:
        self.fatal, self.is_late = -1, False
        self.writes = 0
        self.is_dead = False
        self.made: list[str] = []

    def arm(self, fatal: int, *, is_late: bool) -> None:
        self.fatal, self.is_late, self.writes, self.is_dead = fatal, is_late, 0, False

    def wrap(self, send: Send) -> Send:
        async def mortal(request: Request) -> Answer:
            if self.is_dead:
                raise Killed
            if request.verb in READS:
                return await send(request)
            self.writes += 1
            is_fatal = self.writes == self.fatal
            if is_fatal and not self.is_late:
                self.is_dead = True
                raise Killed
            answer = await send(request)
            if (request.verb, request.kind, answer.status) == ("create", "RayCluster", 201):
                self.made.append(str((request.body or {})["metadata"]["name"]))
            if is_fatal:
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


async def live(cluster: Cluster, namespace: str, fatal: int = -1, *, is_late: bool = False) -> Story:
    life, mortal = Life(cluster, namespace), Mortal()
    await life.begin()
    story = Story([], [], mortal.made, 0, Counter())
    for stage in STAGES:
        await stage.act(life)
        mortal.arm(fatal, is_late=is_late)
        operator = Reconciler(cluster.through(mortal.wrap), hrl.SETTINGS, life.now)
        for _ in range(MOST_PASSES):
            try:
                await operator.reconcile(namespace, JOB)
            except Killed:
                story.kills += 1
                mortal.arm(-1, is_late=False)
                operator = Reconciler(cluster.through(mortal.wrap), hrl.SETTINGS, life.now)
                continue
            if await stage.reached(life):
                break
        else:
            raise AssertionError(f"{stage.name} was not reached: {await life.status()}")
        await operator.reconcile(namespace, JOB)
        story.writes.append(mortal.writes)
        story.images.append(await life.image())
    for event in await cluster.find("Event", namespace, fields="involvedObject.kind=HarborRLJob"):
        story.events[f"{event['reason']}: {event['message']}"] += 1
    return story


@pytest.fixture
async def cluster(bare_plane: RunningControlPlane) -> AsyncIterator[Cluster]:
    connected = await Cluster.connect(str(bare_plane.kubeconfig))
    yield connected
    await connected.close()


async def test_a_kill_at_any_call_changes_nothing_about_the_rest_of_the_life(cluster: Cluster) -> None:
    undisturbed = await live(cluster, "undisturbed")
    assert undisturbed.made == [f"{JOB}-a1", f"{JOB}-a2"]
    assert undisturbed.kills == 0
    slots = asyncio.Semaphore(LIVES_AT_ONCE)

    async def disturbed(fatal: int, *, is_late: bool) -> Story:
        async with slots:
            return await live(cluster, f"{'late' if is_late else 'early'}-{fatal}", fatal, is_late=is_late)

    places = [(fatal, is_late) for fatal in range(1, max(undisturbed.writes) + 1) for is_late in (False, True)]
    stories = await asyncio.gather(*(disturbed(fatal, is_late=is_late) for fatal, is_late in places))
    for place, story in zip(places, stories, strict=True):
        judge(place, story, undisturbed)
    # Each place of each stage was met, but for the passes that a kill made superfluous.
    assert sum(story.kills for story in stories) >= 2 * sum(undisturbed.writes) * 0.9


def judge(place: tuple[int, bool], story: Story, undisturbed: Story) -> None:
    assert story.made == undisturbed.made, place
    for stage, image, expected in zip(STAGES, story.images, undisturbed.images, strict=True):
        assert image.keys() == expected.keys(), (place, stage.name)
        for name, thing in image.items():
            assert thing == expected[name], (place, stage.name, name)
    # An event may be lost between the write of the status and its own; none is invented and none said twice.
    assert story.events <= undisturbed.events, place
