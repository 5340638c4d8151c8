"""One job's life with a fault in each of its stages, at the n-th write of the stage; what is left is compared."""

import dataclasses
import re
from collections import Counter
from collections.abc import Container, Sequence
from enum import Enum
from typing import Any

from harborrl_operator.errors import ClusterError, UnansweredError
from harborrl_operator.reconcile import Reconciler
from harborrl_operator.transport import READS, Answer, Request, Send
from support import hrl
from support.simulated_life import JOB, Life, Stage

MOST_PASSES = 10


class Fault(Enum):
    """What becomes of a write, and of the operator that sent it."""

    KILLED = "killed after it"
    """Accepted; the operator is killed before the answer came. A kill at a read, or before the next write is sent,
    leaves the API server in that same state."""
    REFUSED = "refused"
    """A webhook that is away, a leader of etcd that changes: nothing was done, the operator lives on."""
    UNANSWERED = "not answered"
    """Accepted; the connection broke before the answer, and the operator lives on."""


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """Has its fault at the n-th write of a stage; notes the RayClusters that the server accepted."""

    def __init__(self, fault: Fault = Fault.KILLED) -> None:
        self.fault = fault
        self.fatal = -1
        self.writes = 0
        self.faults = 0
        self.is_dead = False
        self.made: list[str] = []

    def arm(self, fatal: int = -1) -> None:
        self.fatal, self.writes, self.is_dead = fatal, 0, False

    def wrap(self, send: Send) -> Send:
        async def mortal(request: Request) -> Answer:
            if self.is_dead:
                raise Killed
            if request.verb in READS:
                return await send(request)
            self.writes += 1
            is_fatal = self.writes == self.fatal
            if is_fatal and self.fault is Fault.REFUSED:
                self._strike()
                return Answer(503, '{"message": "no endpoints available for service \\"webhook\\""}')
            answer = await send(request)
            if (request.verb, request.kind, answer.status) == ("create", "RayCluster", 201):
                self.made.append(str((request.body or {})["metadata"]["name"]))
            if is_fatal:
                self._strike()
                if self.fault is Fault.KILLED:
                    raise Killed
                raise UnansweredError("connection reset by peer")
            return answer

        return mortal

    def _strike(self) -> None:
        self.faults += 1
        self.fatal = -1
        self.is_dead = self.fault is Fault.KILLED


@dataclasses.dataclass
class Story:
    """What became of one life."""

    images: list[dict[str, Any]]
    """At the end of each stage."""
    writes: list[int]
    made: list[str]
    faults: int
    events: Counter[str]


class Operators:
    """One after the other: when one is killed, a fresh one goes on."""

    def __init__(self, life: Life, mortal: Mortal) -> None:
        self._life, self._mortal = life, mortal
        self._start()

    def _start(self) -> None:
        self._operator = Reconciler(self._life.cluster.through(self._mortal.wrap), hrl.SETTINGS, self._life.now)

    async def look(self) -> bool:
        """One pass; whether it came to its end. One that did not is tried again, as the queue does."""
        try:
            await self._operator.reconcile(self._life.namespace, JOB)
        except Killed:
            self._mortal.arm()
            self._start()
            return False
        except ClusterError:
            return False
        return True

    async def settle(self) -> None:
        """Look until a pass has nothing to write."""
        for _ in range(MOST_PASSES):
            before = self._mortal.writes
            if await self.look() and self._mortal.writes == before:
                return
        raise AssertionError(f"the operator does not come to rest: {await self._life.status()}")


async def live(life: Life, stages: Sequence[Stage], mortal: Mortal, fatal: int = -1, *, spared: int = 0) -> Story:
    """`spared`: how many stages at the beginning have no fault, and no write of theirs is counted."""
    operators = Operators(life, mortal)
    await life.begin()
    images, writes = [], []
    for index, stage in enumerate(stages):
        await stage.act(life)
        mortal.arm(fatal if index >= spared else -1)
        for _ in range(MOST_PASSES):
            if await operators.look() and await stage.reached(life):
                break
        else:
            raise AssertionError(f"{stage.name} was not reached: {await life.status()}")
        writes.append(mortal.writes if index >= spared else 0)
        await operators.settle()
        images.append(await life.image())
    events = await life.cluster.find("Event", life.namespace, fields="involvedObject.kind=HarborRLJob")
    said = Counter(life.normal(f"{event['reason']}: {event['message']}") for event in events)
    return Story(images, writes, mortal.made, mortal.faults, said)


UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A real API server's are random: two lives differ by each object's."""


def differences(
    story: Story, undisturbed: Story, stages: Sequence[Stage], beside: frozenset[str] = frozenset()
) -> list[str]:
    """Where the life went on otherwise than without a fault.

    An event may be lost with its write, and none is said twice. A condition that told of a refusal has turned since.
    `beside`: fields that are not compared.
    """
    unlike = {"lastTransitionTime", *beside}
    found = [
        f"{stage.name}: {name}{_difference(was, wanted)}"
        for stage, image, expected in zip(stages, story.images, undisturbed.images, strict=True)
        for name in sorted(image.keys() | expected.keys())
        if (was := _without(unlike, image.get(name))) != (wanted := _without(unlike, expected.get(name)))
    ]
    if story.made != undisturbed.made:
        found.append(f"RayClusters {story.made}")
    found += [f"said {n} times: {said}" for said, n in story.events.items() if n > max(undisturbed.events[said], 1)]
    return found


def _without(fields: Container[str], value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(fields, one) for key, one in value.items() if key not in fields}
    if isinstance(value, list):
        return [_without(fields, one) for one in value]
    return UID.sub("<uid>", value) if isinstance(value, str) else value


def _difference(was: Any, expected: Any) -> str:
    """The first path below which two values differ, and both."""
    if isinstance(was, dict) and isinstance(expected, dict):
        key = next(key for key in sorted(was.keys() | expected.keys()) if was.get(key) != expected.get(key))
        return f".{key}{_difference(was.get(key), expected.get(key))}"
    if isinstance(was, list) and isinstance(expected, list) and len(was) == len(expected):
        index = next(index for index, pair in enumerate(zip(was, expected, strict=True)) if pair[0] != pair[1])
        return f"[{index}]{_difference(was[index], expected[index])}"
    return f" is {was}, not {expected}"
