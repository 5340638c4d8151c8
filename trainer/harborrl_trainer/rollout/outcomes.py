"""What a trial's outcome means for training: completed, truncated or aborted, and whether its reward is a number.

Infrastructure is never a number: a sample that the policy could not have caused is aborted, and its cause says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Status = Literal["completed", "truncated", "aborted"]
OnAgentTimeout = Literal["grade", "zero", "abort"]

VERIFIER_ERROR = "VerifierError"
GENERATION_ABORTED = "GenerationAborted"
UNKNOWN_STATUS = "UnknownStatus"
TIME_LIMIT = "TimeLimitExceeded"
LENGTH_LIMIT = "SequenceLengthLimitExceeded"
GRADED = frozenset({"Submitted", "TurnLimitExceeded", "VerifierError", "AgentError"})
"""Ends that the policy is answerable for; their reward is the verifier's."""
INFRASTRUCTURE = frozenset(
    {
        "Aborted",
        "SandboxUnavailable",
        "SandboxLost",
        "ModelEndpointFailed",
        "QueueTimeout",
        "TaskNotFound",
        "InvalidInstanceId",
        "InvalidAgent",
        "ServerError",
    }
)
HOPELESS = frozenset({"TaskNotFound", "InvalidInstanceId", "InvalidAgent"})
"""Infrastructure outcomes that a second run of the same trial cannot change."""
LARGEST_REWARD = 1e9
"""A bound on foolishness: the squares of rewards are added up in a group, and one number beyond the range of floats
would make every advantage of its group NaN."""

MESSAGE_LIMIT = 300
"""Characters of the agent server's message that go into a cause: it is repeated in the line of every trial."""


@dataclass(frozen=True)
class TrialReply:
    """The agent server's answer to one `/run`, fields as in tests/contract/run_response.json."""

    exit_status: str
    reward: Any = None
    """As sent; `judge` decides whether it is a number."""
    eval_report: Mapping[str, Any] = field(default_factory=dict)
    agent_metrics: Mapping[str, Any] = field(default_factory=dict)
    infra_failure: bool = False
    exception_type: str | None = None
    trial_name: str = ""
    message: str = ""
    """What broke and what to do, in the agent server's words; empty where there is nothing to say."""
    phase_seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    status: Status
    reward: float | None
    """None exactly when the status is aborted."""
    cause: str = ""
    """Why it was aborted, or what was notable; empty for a plain completed trial."""
    retryable: bool = False
    """An infrastructure failure that a fresh session may not meet again."""
    outcome: str = ""
    """What happened, in one word: an exit status of the agent server, or what this side saw behind it."""


def aborted(cause: str, *, retryable: bool = True, outcome: str = "") -> Verdict:
    return Verdict("aborted", None, cause, retryable, outcome)


def judge(
    reply: TrialReply,
    *,
    on_agent_timeout: OnAgentTimeout,
    turns: int,
    cut_by_length: bool = False,
    generation_aborted: bool = False,
) -> Verdict:
    """The one place where an exit status becomes a sample status.

    `turns` counts the model calls that the session recorded; `cut_by_length` says that the last one reached its token
    limit, `generation_aborted` that the inference engine gave one up half-way. `grade` keeps the verifier's reward of a
    trial that ran out of time or length, and 0 where there is none.
    """
    verdict = _judge(reply, on_agent_timeout, turns, "truncated" if cut_by_length else "completed", generation_aborted)
    return verdict if verdict.outcome else replace(verdict, outcome=reply.exit_status)


def _judge(
    reply: TrialReply, on_agent_timeout: OnAgentTimeout, turns: int, status: Status, generation_aborted: bool
) -> Verdict:
    if reply.infra_failure or reply.exit_status in INFRASTRUCTURE:
        return aborted(_cause(reply), retryable=reply.exit_status not in HOPELESS)
    if reply.exit_status not in GRADED | {TIME_LIMIT, LENGTH_LIMIT}:
        return aborted(f"unknown exit status '{reply.exit_status}'", outcome=UNKNOWN_STATUS)
    if turns == 0:
        return aborted(f"{reply.exit_status} without a model call")
    if generation_aborted:
        return aborted(
            f"{GENERATION_ABORTED}: the inference engine gave up an answer half-way; the agent took it for a whole one",
            outcome=GENERATION_ABORTED,
        )
    if reply.exit_status in {TIME_LIMIT, LENGTH_LIMIT}:
        return _out_of_budget(reply, on_agent_timeout, status)
    return _graded(reply, status, "" if reply.exit_status == "Submitted" else _cause(reply))


def _out_of_budget(reply: TrialReply, on_agent_timeout: OnAgentTimeout, status: Status) -> Verdict:
    if reply.exit_status == LENGTH_LIMIT:
        status = "truncated"
    if on_agent_timeout == "abort":
        return aborted(f"{reply.exit_status} (onAgentTimeout: abort)", retryable=False)
    if on_agent_timeout == "zero" or not reply.eval_report:
        return Verdict(status, 0.0, reply.exit_status)
    return _graded(reply, status, reply.exit_status)


def _graded(reply: TrialReply, status: Status, cause: str) -> Verdict:
    if not reply.eval_report:
        return _no_number(f"{reply.exit_status} with an empty eval_report")
    if isinstance(reply.reward, bool) or not isinstance(reply.reward, (int, float)):
        return _no_number(f"{reply.exit_status} with reward {reply.reward!r}")
    if not abs(reply.reward) <= LARGEST_REWARD:  # NaN is not
        return _no_number(f"{reply.exit_status} with reward {str(reply.reward)[:40]}, not within +-{LARGEST_REWARD:g}")
    return Verdict(status, float(reply.reward), cause)


def _no_number(what: str) -> Verdict:
    """Not run again: an agent can have brought its verifier to this, and would be run until it is graded."""
    return aborted(f"{VERIFIER_ERROR}: {what}", retryable=False, outcome=VERIFIER_ERROR)


def _cause(reply: TrialReply) -> str:
    cause = f"{reply.exit_status} ({reply.exception_type})" if reply.exception_type else reply.exit_status
    message = " ".join(reply.message.split())[:MESSAGE_LIMIT]
    return f"{cause}: {message}" if message else cause
