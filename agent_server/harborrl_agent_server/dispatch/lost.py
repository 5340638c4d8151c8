"""What became of the trials of a worker that died, as far as anybody can know."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from harborrl_agent_server.contract import ExitStatus, RunResponse
from harborrl_agent_server.outcomes import Cause
from harborrl_agent_server.phases import Phase
from harborrl_agent_server.sessions import recorded_answer
from harborrl_agent_server.snapshot import RunView

WORKER_LOST = "worker_lost"
"""As a cause: the process ended under the trial, and its client's connection broke."""


def endings(lost: Iterable[RunView], trials_dir: Path, *, leaving: bool) -> list[RunView]:
    """By what lies on the trials volume: a trial may have ended after its worker was looked at last. Blocking."""
    return [ending(view, record_of(view, trials_dir), leaving=leaving) for view in lost]


def record_of(view: RunView, trials_dir: Path) -> RunResponse | None:
    return None if view.trial_name is None else recorded_answer(trials_dir / view.trial_name)


def ending(view: RunView, answer: RunResponse | None, *, leaving: bool) -> RunView:
    """`answer`: the trial's record; where there is none it is over as whoever asks for it again will be told.

    A worker that leaves has answered what it still had, and of what never began there is no record.
    """
    if answer is not None:
        outcome, cause = answer.exit_status, view.cause
    elif leaving:
        outcome, cause = ExitStatus.ABORTED, Cause.SHUTDOWN.value
    else:
        outcome, cause = ExitStatus.SERVER_ERROR, WORKER_LOST
    return replace(
        view,
        phase=Phase.DONE,
        outcome=outcome,
        cause=cause,
        reward=answer.reward if answer is not None and answer.eval_report else None,
        age_s=view.age_s if answer is None else answer.agent_metrics.get("total_time", view.age_s),
        ended_s_ago=0.0,
    )
