"""The answer of a run: from its trial's evidence, or without a trial."""

from dataclasses import replace

from harborrl_agent_server.building import BadTaskError, TrialExistsError
from harborrl_agent_server.contract import ExitStatus, RunResponse
from harborrl_agent_server.endpoints import EndpointRefusedError
from harborrl_agent_server.errors import HostError, InvalidAgentError
from harborrl_agent_server.outcomes import Cause, Evidence, Verdict, judge
from harborrl_agent_server.run import Run
from harborrl_agent_server.settings import Settings
from harborrl_agent_server.tasks import InvalidInstanceIdError, TaskNotFoundError
from harborrl_agent_server.trial import TrialRun

LONGEST_MESSAGE = 2000
"""Characters."""

MOST_WARNINGS = 100

REFUSALS: dict[type[Exception], ExitStatus] = {
    InvalidInstanceIdError: ExitStatus.INVALID_INSTANCE_ID,
    TaskNotFoundError: ExitStatus.TASK_NOT_FOUND,
    BadTaskError: ExitStatus.TASK_NOT_FOUND,
    InvalidAgentError: ExitStatus.INVALID_AGENT,
    EndpointRefusedError: ExitStatus.MODEL_ENDPOINT_FAILED,
    TrialExistsError: ExitStatus.SERVER_ERROR,
    HostError: ExitStatus.SERVER_ERROR,
}
"""What a trial that was not begun is answered with."""


def refused(error: Exception) -> RunResponse:
    return refusal(REFUSALS[type(error)], str(error))


def refusal(status: ExitStatus, message: str) -> RunResponse:
    return response_from(Verdict(status, message=message))


def not_admitted(run: Run, now: float, settings: Settings) -> RunResponse:
    """Of a run that never had a slot."""
    waited = now - run.registered
    if run.cause is Cause.SESSION_GONE:
        answer = response_from(judge(Evidence(cause=run.cause, cause_message=run.cause_message)))
    elif run.cause is not None:
        answer = refusal(ExitStatus.ABORTED, f"cancelled while queued: {run.cause}")
    else:
        answer = refusal(ExitStatus.QUEUE_TIMEOUT, too_late(waited, run.request.deadline_s or 0, settings))
    answer.phase_seconds["queue"] = round(waited, 3)
    return answer


def too_late(waited: float, deadline_s: float, settings: Settings) -> str:
    needed = settings.budgets.total()
    if deadline_s < needed:
        return (
            f"a trial takes up to {needed:.0f} s, and its client waits {deadline_s:.0f} s (deadline_s), whether or not "
            "a slot is free: raise the client's ceiling above the sum of the time-outs, or lower them"
        )
    return (
        f"no slot in {waited:.0f} s; a trial takes up to {needed:.0f} s of the client's {deadline_s:.0f} s; "
        "raise --max-concurrent or --start-concurrency, send fewer trials at once, or wait longer"
    )


def of_trial(run: Run, trial: TrialRun, settings: Settings) -> RunResponse:
    """Of a trial that is over, or that will not end."""
    evidence = replace(
        trial.evidence(run.cause, agent_timeout_s=settings.budgets.agent_timeout_s), cause_message=run.cause_message
    )
    verdict = judge(evidence, reward_key=settings.reward_key)
    answer = response_from(verdict)
    answer.trial_name = trial.name
    answer.exception_type = evidence.exception
    answer.agent_metrics = trial.metrics()
    queue = (run.admitted or run.registered) - run.registered
    answer.phase_seconds = {"queue": round(queue, 3), **trial.phase_seconds()}
    answer.warnings = [one_line(warning) for warning in [*verdict.warnings, *trial.scope.warnings][:MOST_WARNINGS]]
    return answer


def one_line(text: str) -> str:
    """What people read, however many names and lines a verifier or a library put into it."""
    return " ".join(text.split())[:LONGEST_MESSAGE]


def response_from(verdict: Verdict) -> RunResponse:
    return RunResponse(
        reward=verdict.reward,
        exit_status=verdict.exit_status,
        eval_report=verdict.eval_report,
        infra_failure=verdict.infra_failure,
        message=None if verdict.message is None else one_line(verdict.message),
    )
