"""A session server that fails as it is told, and knows the reward that each of its trials must get."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from support.raw_http import Answer, Asked

STEPS = 3
"""Turns with a command; one more ends the trial."""

REWARDS = {1: 0.25, 2: 0.5, 3: 1.0}
"""By the steps that were taken. None is 0: a graded zero can only be a failure that was scored."""

VERIFY = """case $(ls /app | grep -c '^step-') in 1) r=0.25;; 2) r=0.5;; 3) r=1.0;; *) r=0;; esac
echo $r >/logs/verifier/reward.txt"""


class Fate(StrEnum):
    """What befalls one session."""

    NONE = "none"
    RESET = "connection reset, then well"
    BUSY = "5xx, then well"
    DOWN = "5xx for ever"
    BROKEN_OFF = "generation aborted"
    DELETED = "session deleted"
    POD_DELETED = "sandbox deleted before a reply"
    POD_DELETED_IN_COMMAND = "sandbox deleted under a command"


WELL = frozenset({Fate.NONE, Fate.RESET, Fate.BUSY})
"""Those whose trial can be graded. One of any other is an infrastructure failure for certain."""

SHARES = dict.fromkeys(Fate, 5) | {Fate.NONE: 65}

Delete = Callable[[str], Awaitable[None]]
"""Removes the sandbox of a session's trial."""


@dataclass
class Played:
    """One session: one try at one trial."""

    name: str
    fate: Fate
    when: int
    """The turn at which it strikes."""
    times: int
    """How often a fault that passes does."""
    steps: int
    slow: bool

    @property
    def truth(self) -> float:
        return REWARDS[self.steps]


@dataclass
class ChaosModel:
    """Sessions by name, drawn from one seed."""

    seed: int
    instance: str
    delete: Delete
    sessions: dict[str, Played] = field(default_factory=dict)
    struck: Counter[Fate] = field(default_factory=Counter)
    """Faults that really happened."""
    _deletions: set[asyncio.Future[None]] = field(default_factory=set)

    def session(self, trial: int, attempt: int, attempts: int) -> Played:
        """The later half of a trial's attempts has no fault of its own."""
        draw = random.Random(f"{self.seed} {trial} {attempt}")  # noqa: S311 - to be drawn again
        fate = draw.choices(list(SHARES), list(SHARES.values()))[0]
        played = Played(
            name=f"t{trial}a{attempt}",
            fate=Fate.NONE if attempt >= attempts // 2 else fate,
            when=draw.randrange(STEPS),
            times=draw.randint(1, 2),
            steps=draw.randint(1, STEPS),
            slow=draw.random() < 0.3,
        )
        self.sessions[played.name] = played
        return played

    async def handle(self, asked: Asked) -> Answer | None:
        if asked.path == "/health":
            return Answer.of({"status": "ok", "session_server_instance_id": self.instance})
        played = self.sessions[asked.path.split("/")[2]]
        turn = sum(message["role"] == "assistant" for message in asked.body["messages"])
        passed = played.fate in WELL and played.times == 0
        if turn != played.when or played.fate is Fate.NONE or passed:
            return said(played, turn)
        played.times -= 1
        self.struck[played.fate] += 1
        return await self._struck(played, turn)

    async def _struck(self, played: Played, turn: int) -> Answer | None:
        answer: Answer | None = None
        match played.fate:
            case Fate.BUSY | Fate.DOWN:
                answer = Answer.of({"error": "no worker"}, 503)
            case Fate.BROKEN_OFF:
                answer = completion("", finish_reason="abort")
            case Fate.DELETED:
                answer = Answer.of({"error": "session not found"}, 404)
            case Fate.POD_DELETED:
                await self.delete(played.name)
                answer = said(played, turn)
            case Fate.POD_DELETED_IN_COMMAND:
                removal = asyncio.ensure_future(self.delete(played.name))
                self._deletions.add(removal)
                removal.add_done_callback(self._deletions.discard)
                answer = completion("```sh\nsleep 300\n```")
            case Fate.NONE | Fate.RESET:
                pass  # no answer: the connection is reset
        return answer


def said(played: Played, turn: int) -> Answer:
    if turn >= STEPS:
        return completion("TASK_DONE")
    step = f"echo done >/app/step-{turn}" if turn < played.steps else "ls /app"
    return completion(f"```sh\n{step}\n{'sleep 3' if played.slow else ':'}\n```")


def completion(text: str, finish_reason: str = "stop") -> Answer:
    message = {"role": "assistant", "content": text}
    usage: dict[str, Any] = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return Answer.of({"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}], "usage": usage})
