"""One trial from its place in the queue to its verdict, with one re-run where infrastructure failed it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from harborrl_trainer.rollout.agent_client import ABSENCE_S, AgentServerError
from harborrl_trainer.rollout.inflight import InFlight
from harborrl_trainer.rollout.outcomes import Verdict, aborted

Payload = TypeVar("Payload")

RERUN_SHARE = 0.5
"""A trial is run again only while this share of its ceiling is left: less would mostly meet the deadline instead."""


@dataclass(frozen=True)
class TrialEnd(Generic[Payload]):  # noqa: UP046 - Python 3.10 syntax
    """How one run of a trial ended; `payload` is the engine's sample, None where there is nothing to train on."""

    verdict: Verdict
    outcome: str
    session: str
    payload: Payload | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    turns: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    weight_version: int = 0
    agent_metrics: Mapping[str, Any] = field(default_factory=dict)
    may_run: bool = False
    """No answer came: the agent server may still be at it."""


@dataclass(frozen=True)
class TrialHistory(Generic[Payload]):  # noqa: UP046 - Python 3.10 syntax
    """The run that counts, and the one before it that infrastructure failed, if any."""

    final: TrialEnd[Payload]
    replaced: TrialEnd[Payload] | None = None


RunOnce = Callable[[int, float], Awaitable[TrialEnd[Payload]]]
"""(number of this run: 0 or 1, ceiling in seconds) -> end. Opens a session of its own each time."""


AwaitRoom = Callable[[float], Awaitable[bool]]
"""(seconds at most) -> whether the agent server is there to run it."""


class TrialCounter(Protocol):
    """What `run_trial` tells: exactly one `end` for each `start`, also for a trial that is cancelled."""

    def start(self) -> None: ...

    def end(self, history: TrialHistory[Any]) -> None: ...


async def run_trial(  # noqa: UP047 - Python 3.10 syntax
    run_once: RunOnce[Payload],
    *,
    places: InFlight,
    ceiling_s: float,
    clock: Callable[[], float],
    counter: TrialCounter,
    needed_s: float = 0.0,
    wanted: Callable[[], bool] = lambda: True,
    room: AwaitRoom | None = None,
) -> TrialHistory[Payload]:
    """The ceiling covers both runs and starts when the trial has its place: waiting for one costs it nothing.

    `needed_s` is the sum of the agent server's budgets: it refuses a run that has less, and that refusal would hide
    what was wrong. `wanted` turns false when nobody waits for the sample any more: then there is no second run. `room`
    is waited for before a second run beside a first one that may still hold its slot.
    """
    counter.start()
    try:
        async with places.place():
            history = await _run_twice_at_most(run_once, ceiling_s, clock, needed_s=needed_s, wanted=wanted, room=room)
    except BaseException as error:
        counter.end(TrialHistory(end_without_sample(error, "")))
        raise
    counter.end(history)
    return history


async def _run_twice_at_most(  # noqa: UP047 - Python 3.10 syntax
    run_once: RunOnce[Payload],
    ceiling_s: float,
    clock: Callable[[], float],
    *,
    needed_s: float,
    wanted: Callable[[], bool],
    room: AwaitRoom | None,
) -> TrialHistory[Payload]:
    started, least = clock(), max(ceiling_s * RERUN_SHARE, needed_s)
    first = await run_once(0, ceiling_s)
    left = ceiling_s - (clock() - started)
    if first.verdict.status != "aborted" or not first.verdict.retryable or left < least or not wanted():
        return TrialHistory(first)
    if first.may_run and room is not None:
        there = await room(min(ABSENCE_S, left - least))
        left = ceiling_s - (clock() - started)
        if not there or not wanted():
            return TrialHistory(first)
    return TrialHistory(await run_once(1, left), replaced=first)


def end_without_sample(error: BaseException, session: str) -> TrialEnd[Any]:
    """Something broke on this side: an aborted trial whose outcome is the error's name."""
    name = type(error).__name__.removesuffix("Error")
    return TrialEnd(aborted(f"{name}: {error}".rstrip(": ")), outcome=name, session=session)


def end_without_reply(error: AgentServerError, session: str) -> TrialEnd[Any]:
    """No answer from the agent server: an aborted trial whose outcome is the error's name."""
    name = type(error).__name__
    verdict = aborted(f"{name}: {error}", retryable=error.retryable)
    return TrialEnd(verdict, outcome=name, session=session, may_run=error.may_run)


async def gather_or_cancel(work: list[Awaitable[Payload]]) -> list[Payload]:  # noqa: UP047 - Python 3.10 syntax
    """All results in order. The first error, or being cancelled, cancels the rest and waits until they have gone."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
