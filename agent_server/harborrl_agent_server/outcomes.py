"""What a trial's end means for the sample: pure, one ordered table.

The rule behind it: a sample is discarded only for what the policy cannot have caused. Infrastructure is never a number.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from harborrl_agent_server.contract import ExitStatus
from harborrl_agent_server.errors import HOST_FAULTS


class Cause(StrEnum):
    """Why a run was ended from outside; the first one wins."""

    FLUSH = "flush"
    CLIENT_GONE = "client_gone"
    SHUTDOWN = "shutdown"
    SESSION_GONE = "session_gone"
    """Its session server has ended or was started anew: what the trial earns belongs to no tokens any more."""
    OVERRUN = "overrun"
    """All budgets together are spent and Harbor has not come back."""


TOO_LATE = frozenset({Cause.CLIENT_GONE, Cause.SHUTDOWN, Cause.OVERRUN})
"""Causes that take no reward away which was there before them: its session is as it was, and a client that asks for it
again is given the answer. After a flush nobody wants it, and without a session server it belongs to no tokens."""


@dataclass(frozen=True)
class Evidence:
    """What is known of a trial that is over."""

    cause: Cause | None = None
    cause_message: str = ""
    """What is known beyond the cause."""
    exception: str | None = None
    """Class name of the exception that Harbor recorded first."""
    message: str = ""
    fault: str | None = None
    """Class name of the first sandbox error that our own code saw; Harbor wraps some and swallows some."""
    fault_message: str = ""
    agent_started: bool = False
    agent_end: ExitStatus | None = None
    """How the agent says it ended."""
    agent_timed_out: bool = False
    """The agent phase really lasted its whole budget; Harbor calls any escaping TimeoutError a time-out."""
    never_asked: bool = False
    """An agent of the sandbox whose model was never asked: the policy has done nothing yet."""
    verifier_started: bool = False
    verifiers_own_missing: bool = False
    """The verifier was to grade in a sandbox of its own, and that never started."""
    after_grading: bool = False
    """The exception came when the verifier was done: from stopping the sandbox, say."""
    rewards: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Verdict:
    exit_status: ExitStatus
    reward: float = 0.0
    eval_report: dict[str, float] = field(default_factory=dict)
    message: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def infra_failure(self) -> bool:
        return not self.eval_report


class RewardError(ValueError):
    """The verifier's numbers do not say what the reward is."""


ZERO = {"reward": 0.0}

HOST_ERRORS = frozenset(fault.__name__ for fault in HOST_FAULTS)

THE_POLICYS = frozenset({"SandboxResourceError", "SandboxUnusableError"})
"""Ends of a sandbox that are its agent's doing, once it has begun: memory and storage used up, nothing left to run."""


def judge(seen: Evidence, *, reward_key: str | None = None) -> Verdict:  # noqa: PLR0911 - a table
    """The verdict on a trial; the first line that applies decides."""
    why = f"{seen.exception}: {seen.message}" if seen.exception else None
    if seen.cause is not None and not (seen.cause in TOO_LATE and seen.rewards is not None):
        return ended_from_outside(seen.cause, seen.cause_message)
    if not seen.agent_started:
        return Verdict(ExitStatus.SANDBOX_UNAVAILABLE, message=why or seen.fault_message or "the sandbox never started")
    if seen.exception == "ModelEndpointError":
        return Verdict(ExitStatus.MODEL_ENDPOINT_FAILED, message=why)
    if seen.exception == "AgentTimeoutError" and seen.never_asked:
        return Verdict(
            ExitStatus.MODEL_ENDPOINT_FAILED,
            message="the agent's time went by before its first request: give it cpu, memory, a way to the gateway",
        )
    if (seen.exception in HOST_ERRORS and not seen.after_grading) or (seen.fault in HOST_ERRORS and not seen.rewards):
        said = why if seen.exception in HOST_ERRORS else f"{seen.fault}: {seen.fault_message}"
        return Verdict(ExitStatus.SERVER_ERROR, message=f"{said}; look at the agent server's volumes and limits")
    if seen.verifiers_own_missing and seen.rewards is None:
        said = seen.fault_message or why or "no reason given"
        return Verdict(ExitStatus.SANDBOX_UNAVAILABLE, message=f"the verifier's own sandbox did not start: {said}")
    broke = seen.rewards is None or (seen.exception == seen.fault and not seen.after_grading)
    if seen.fault in THE_POLICYS and broke and not seen.never_asked:
        return Verdict(ExitStatus.AGENT_ERROR, eval_report=dict(ZERO), message=seen.fault_message)
    if seen.fault is not None and broke:
        return Verdict(ExitStatus.SANDBOX_LOST, message=f"{seen.fault}: {seen.fault_message}")
    return graded(seen, reward_key=reward_key)


def ended_from_outside(cause: Cause, message: str) -> Verdict:
    match cause:
        case Cause.FLUSH | Cause.CLIENT_GONE | Cause.SHUTDOWN:
            return Verdict(ExitStatus.ABORTED, message=f"cancelled: {cause}")
        case Cause.SESSION_GONE:
            return Verdict(ExitStatus.MODEL_ENDPOINT_FAILED, message=f"the session is gone: {message}")
        case Cause.OVERRUN:
            said = "the trial outlived all its budgets and was removed; look at the server's log"
            return Verdict(ExitStatus.SERVER_ERROR, message=said)


def graded(seen: Evidence, *, reward_key: str | None) -> Verdict:
    """Trials whose end is the policy's own or the verifier's."""
    why = f"{seen.exception}: {seen.message}" if seen.exception else None
    limit = ExitStatus.TIME_LIMIT if seen.exception == "AgentTimeoutError" and seen.agent_timed_out else None
    limit = limit or (seen.agent_end if seen.agent_end is not ExitStatus.SUBMITTED else None)
    try:
        reward, report = reward_from(seen.rewards, reward_key) if seen.rewards is not None else (0.0, None)
    except RewardError as error:
        return Verdict(limit or ExitStatus.VERIFIER_ERROR, eval_report=dict(ZERO), message=str(error))
    if limit is not None:
        return Verdict(limit, reward=reward, eval_report=report or dict(ZERO), message=why)
    if report is not None:
        if seen.exception is None or seen.after_grading:
            late = tuple(f"after grading: {text}" for text in (why, seen.cause and f"cancelled: {seen.cause}") if text)
            return Verdict(seen.agent_end or ExitStatus.SUBMITTED, reward=reward, eval_report=report, warnings=late)
        return Verdict(ExitStatus.AGENT_ERROR, reward=reward, eval_report=report, message=why)
    if seen.verifier_started:
        return Verdict(
            ExitStatus.VERIFIER_ERROR, eval_report=dict(ZERO), message=why or "the verifier reported nothing"
        )
    return Verdict(ExitStatus.AGENT_ERROR, eval_report=dict(ZERO), message=why)


def reward_from(rewards: Mapping[str, float], reward_key: str | None) -> tuple[float, dict[str, float]]:
    """The reward and the whole report: `reward_key` if set, else the key `reward`, else the only key."""
    report = {key: finite(value) for key, value in rewards.items()}
    broken = [key for key, value in report.items() if math.isnan(value)]
    if broken:
        raise RewardError(f"the verifier reported no finite number for {', '.join(broken)}")
    key = reward_key or ("reward" if "reward" in report else next(iter(report), None) if len(report) == 1 else None)
    if key is None or key not in report:
        raise RewardError(
            f"the verifier reported {', '.join(report) or 'nothing'}; choose with --reward-key (job: rewardKey)"
        )
    return report[key], report


def finite(value: float) -> float:
    """NaN for whatever is no finite float: JSON's integers have no bound."""
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:
        return math.nan
