"""What the pages show, and what has changed in it between two looks. Pure: the time is an argument.

Ages go over the wire as the moment they began, so that a trial is sent again only when its phase changes.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from harborrl_agent_server.contract import ExitStatus
from harborrl_agent_server.dashboard.families import Family, family
from harborrl_agent_server.phases import Phase
from harborrl_agent_server.snapshot import RunView, Snapshot

KEPT_ENDED = 500
"""Finished trials that the page lists; all of them are on the trials volume."""

KEPT_MINUTES = 24 * 60
"""Of the charts over time: what a restart of the page still shows."""


@dataclass(frozen=True, slots=True)
class Server:
    """The server itself, without anything that changes by the second."""

    status: str
    capacity: int
    in_flight: int
    queued: int
    leaked: int
    """Trials of which something is still left."""
    workers: int = 1
    silent: tuple[int, ...] = ()
    """Workers that do not answer now: what is shown of their trials is what they said last."""


@dataclass(frozen=True, slots=True)
class Live:
    """Moments are Unix times; None: not reached."""

    key: str
    id: str
    task: str
    agent: str
    session: str | None
    phase: str
    since: float
    """When it was asked for."""
    phase_since: float
    slot_since: float | None
    agent_since: float | None
    """While the agent acts."""
    agent_spent: float | None
    """Seconds that the agent's phase took, once it is over."""
    trial: str | None
    worker: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    key: str
    id: str
    task: str
    agent: str
    status: str
    family: Family
    cause: str | None
    reward: float | None
    """None where the trial has no reward, which is not 0."""
    seconds: float
    """From the request to the answer, the queue included."""
    at: float
    trial: str | None
    worker: int | None = None


@dataclass(frozen=True, slots=True)
class Minute:
    """Trials that ended in one minute, by family, and the rewards among them."""

    graded: int = 0
    limit: int = 0
    fault: int = 0
    aborted: int = 0
    infra: int = 0
    scored: int = 0
    reward: float = 0.0
    """Sum over the scored ones."""

    def with_one(self, trial: Ended) -> "Minute":
        counts = asdict(self)
        counts[trial.family] += 1
        if trial.reward is not None:
            counts["scored"] += 1
            counts["reward"] = round(counts["reward"] + trial.reward, 6)
        return Minute(**counts)


@dataclass(frozen=True, slots=True)
class StepReward:
    """One training step (or evaluation) as its trainer recorded it."""

    step: int
    evaluation: bool
    trials: int
    kept: int
    mean: float | None
    """Over the kept trials; None where there is none."""
    error: float
    """Standard error of the mean."""


@dataclass(frozen=True)
class State:
    server: Server = field(default_factory=lambda: Server("starting", 0, 0, 0, 0))
    live: Mapping[str, Live] = field(default_factory=dict)
    """By key, in the order they came."""
    ended: Mapping[str, Ended] = field(default_factory=dict)
    """By key, oldest first: of one session there may be several."""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """By exit status, since the server started."""
    minutes: Mapping[int, Minute] = field(default_factory=dict)
    """By Unix time / 60; empty minutes are absent."""
    steps: tuple[StepReward, ...] = ()


def after(state: State, seen: Snapshot, *, status: str, now: float, steps: tuple[StepReward, ...] = ()) -> State:
    """The state that follows from a look at the runs; what has not changed stays the very same object."""
    new = [ended_row(view, now) for view in reversed(seen.finished) if view.key not in state.ended]
    return State(
        server=Server(
            status, seen.capacity, seen.in_flight, seen.queued, seen.leaked, workers=seen.workers, silent=seen.silent
        ),
        live={view.key: live_row(view, state.live.get(view.key), now) for view in seen.live},
        ended=_with_new(state.ended, new),
        outcomes=dict(seen.outcomes),
        minutes=_counted(state.minutes, new, now) if new else state.minutes,
        steps=steps,
    )


def live_row(view: RunView, before: Live | None, now: float) -> Live:
    if before is not None and (before.phase, before.trial) == (view.phase, view.trial_name):
        return before
    acts = view.phase is Phase.RUNNING
    return Live(
        key=view.key,
        id=view.id,
        task=view.instance_id,
        agent=view.agent,
        session=view.session,
        phase=view.phase,
        since=round(now - view.age_s, 2),
        phase_since=round(now - view.phase_age_s, 2),
        slot_since=None if view.slot_age_s is None else round(now - view.slot_age_s, 2),
        agent_since=round(now - view.agent_age_s, 2) if acts and view.agent_age_s is not None else None,
        agent_spent=round(view.agent_age_s, 2) if not acts and view.agent_age_s is not None else None,
        trial=view.trial_name,
        worker=view.worker,
    )


def ended_row(view: RunView, now: float) -> Ended:
    status = view.outcome or ExitStatus.SERVER_ERROR
    return Ended(
        key=view.key,
        id=view.id,
        task=view.instance_id,
        agent=view.agent,
        status=status,
        family=family(status),
        cause=view.cause,
        reward=view.reward,
        seconds=round(view.age_s, 2),
        at=round(now - (view.ended_s_ago or 0.0), 2),
        trial=view.trial_name,
        worker=view.worker,
    )


def _with_new(ended: Mapping[str, Ended], new: list[Ended]) -> Mapping[str, Ended]:
    if not new:
        return ended
    whole = {**ended, **{trial.key: trial for trial in new}}
    return dict(islice(whole.items(), max(len(whole) - KEPT_ENDED, 0), None))


def _counted(minutes: Mapping[int, Minute], new: list[Ended], now: float) -> Mapping[int, Minute]:
    oldest = int(now // 60) - KEPT_MINUTES
    counted = {minute: counts for minute, counts in minutes.items() if minute > oldest}
    for trial in new:
        minute = int(trial.at // 60)
        if minute > oldest:
            counted[minute] = counted.get(minute, Minute()).with_one(trial)
    return counted


NOTHING = State()


def changes(old: State, new: State) -> dict[str, Any]:
    """What a page that shows `old` needs in order to show `new`; empty when it needs nothing."""
    found: dict[str, Any] = {}
    if old.server != new.server:
        found["server"] = asdict(new.server)
    changed = [asdict(row) for key, row in new.live.items() if old.live.get(key) is not row]
    gone = [key for key in old.live if key not in new.live]
    if changed or gone:
        found["live"] = {"set": changed, "gone": gone}
    if added := [asdict(row) for key, row in new.ended.items() if key not in old.ended]:
        found["ended"] = added
    if old.outcomes != new.outcomes:
        found["outcomes"] = dict(new.outcomes)
    if minutes := {at: asdict(one) for at, one in new.minutes.items() if old.minutes.get(at) is not one}:
        found["minutes"] = minutes
    if old.steps != new.steps:
        found["steps"] = [asdict(step) for step in new.steps]
    return found
