"""What can be seen of all runs at one moment: plain values, safe to show. No key, no column of a data set."""

from collections.abc import Mapping
from dataclasses import dataclass

from harborrl_agent_server.phases import Phase
from harborrl_agent_server.run import Run

SHOWN = 128
"""Characters of an id: the longest that names a task, and a bound for those that name none."""


@dataclass(frozen=True)
class RunView:
    key: str
    """Of this run alone."""
    id: str
    """Of its session, which may have had others."""
    instance_id: str
    agent: str
    session: str | None
    """The training session (`session_server_instance_id`)."""
    phase: Phase
    age_s: float
    """Since it was asked for, the queue included; of a finished run its whole life."""
    phase_age_s: float
    slot_age_s: float | None
    """Since it got its slot: bounded by the sum of the budgets. None while it is queued, and if it never got one."""
    agent_age_s: float | None
    """Of the agent's phase alone, until now or until it ended: bounded by the agent's time-out."""
    cause: str | None
    """Why it was ended from outside."""
    outcome: str | None
    """The answer's `exit_status`; None while it lives."""
    reward: float | None
    """None unless it was graded."""
    trial_name: str | None
    """Its directory below `--trials-dir`."""
    ended_s_ago: float | None
    worker: int | None = None
    """The number of the process that has it; None where there is one process."""


@dataclass(frozen=True)
class Snapshot:
    live: tuple[RunView, ...]
    """Oldest first: the queue's own order."""
    finished: tuple[RunView, ...]
    """The last ones, newest first."""
    outcomes: Mapping[str, int]
    """Of all runs since the server began."""
    capacity: int
    in_flight: int
    queued: int
    leaked: int
    """Trials of which something is still left."""
    workers: int = 1
    """Processes of the server."""
    silent: tuple[int, ...] = ()
    """Numbers of those that do not answer now."""


def view(run: Run, now: float, worker: int | None = None) -> RunView:
    finished = run.finished
    until = now if finished is None else finished
    answer = run.answer
    return RunView(
        key=run.key,
        id=run.id,
        instance_id=run.request.instance_id[:SHOWN],
        agent=run.agent,
        session=run.request.session_server_instance_id,
        phase=run.phase,
        age_s=until - run.registered,
        phase_age_s=now - run.entered[run.phase],
        slot_age_s=None if run.admitted is None else until - run.admitted,
        agent_age_s=spent(run, Phase.RUNNING, until),
        cause=run.cause,
        outcome=None if answer is None else answer.exit_status,
        reward=answer.reward if answer is not None and answer.eval_report else None,
        trial_name=run.trial_name,
        ended_s_ago=None if finished is None else now - finished,
        worker=worker,
    )


def spent(run: Run, phase: Phase, until: float) -> float | None:
    """Seconds that a run was in a phase; None if it never was."""
    if phase not in run.entered:
        return None
    began = run.entered[phase]
    order = list(run.entered)
    later = order[order.index(phase) + 1 :]
    return (run.entered[later[0]] if later else until) - began
