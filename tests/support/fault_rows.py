"""The table of outcomes: what the agent server does, and what becomes of the sample. The same for every engine."""

from dataclasses import dataclass, field
from typing import Any, Literal

OnAgentTimeout = Literal["grade", "zero", "abort"]


@dataclass(frozen=True)
class Row:
    fault: str
    status: str
    reward: float | None = None
    outcome: str = "Submitted"
    runs: int = 1
    """Requests that reach the agent server."""
    on_agent_timeout: OnAgentTimeout = "grade"
    ceiling_s: float = 60.0
    cause: str = ""
    """A part of it."""
    or_else: str = ""
    """The outcome where Miles breaks on it before anybody can judge."""

    @property
    def name(self) -> str:
        return self.fault if self.on_agent_timeout == "grade" else f"{self.fault}:{self.on_agent_timeout}"


@dataclass(frozen=True)
class Seen:
    """What a harness saw of one row, in plain values: it may have come from another process."""

    status: str
    reward: float | None
    outcome: str
    cause: str
    runs: int
    sessions: int
    counts: dict[str, int]
    records: list[dict[str, Any]]
    learned: int = 0
    """Tokens with loss mask 1 that training would get."""
    metadata: dict[str, Any] = field(default_factory=dict)


TIMELY = 0.5
"""Seconds of a ceiling that is meant to be reached; the time that a run of these rows takes."""


CROWD = 300
MIXTURE = ("good", "lost", "null-reward", "length-limit", "reset")
"""Faults of a crowd's trials, in turn."""


def aborted(fault: str, outcome: str, runs: int = 1, **more: Any) -> Row:
    return Row(fault, "aborted", None, outcome, runs, **more)


ROWS = (
    Row("good", "completed", 0.5),
    Row("zero", "completed", 0.0),
    Row("late-but-whole", "completed", 0.5),
    Row("leaving-once", "completed", 0.5, runs=2),
    Row("lost-once", "completed", 0.5, runs=2),
    Row("session-lost", "completed", 0.5, runs=2),
    Row("agent-error", "completed", 0.0, "AgentError"),
    Row("cut-by-length", "truncated", 0.5),
    Row("length-limit", "truncated", 0.25, "SequenceLengthLimitExceeded"),
    Row("length-limit", "truncated", 0.0, "SequenceLengthLimitExceeded", on_agent_timeout="zero"),
    aborted("length-limit", "SequenceLengthLimitExceeded", on_agent_timeout="abort"),
    Row("time-limit", "completed", 0.25, "TimeLimitExceeded"),
    Row("time-limit", "completed", 0.0, "TimeLimitExceeded", on_agent_timeout="zero"),
    aborted("time-limit", "TimeLimitExceeded", on_agent_timeout="abort"),
    Row("time-limit-ungraded", "completed", 0.0, "TimeLimitExceeded"),
    aborted("timeout", "TrialCeilingExceeded", ceiling_s=TIMELY, cause="no answer within 0.5 s"),
    aborted("slow-headers", "TrialCeilingExceeded", ceiling_s=TIMELY),
    aborted("slow-body", "TrialCeilingExceeded", ceiling_s=TIMELY),
    aborted("reset", "AgentServerUnreachable", runs=2),
    aborted("cut-short", "AgentServerUnreachable", runs=2),
    aborted("no-http", "AgentServerUnreachable", runs=2),
    aborted("http-500", "BadReply", runs=2, cause="HTTP 500"),
    aborted("garbage", "BadReply", runs=2, cause="not JSON"),
    aborted("no-status", "BadReply", runs=2, cause="no exit_status"),
    aborted("null-reward", "VerifierError", cause="reward None"),
    aborted("nan-reward", "VerifierError", cause="reward nan"),
    aborted("text-reward", "VerifierError", cause="reward '1.0'"),
    aborted("huge-reward", "VerifierError", cause="1e+300"),
    aborted("empty-report", "VerifierError", cause="empty eval_report"),
    aborted("unknown-status", "UnknownStatus", runs=2, cause="unknown exit status 'Error: KeyError'"),
    aborted("no-turns", "Submitted", runs=2, cause="without a model call"),
    aborted("generation-aborted", "GenerationAborted", runs=2),
    aborted("generation-aborted-midway", "GenerationAborted", runs=2, or_else="CollectFailed"),
    aborted("lost", "SandboxLost", runs=2, cause="node gone"),
    aborted("lost-with-reward", "SandboxLost", runs=2),
    aborted("task-missing", "TaskNotFound", cause="no task 'x'"),
    aborted("cancelled", "Aborted", runs=2),
)
