"""The outcome table of docs/agent-server.md, row by row: a row without evidence here fails, and the other way round."""

from dataclasses import replace
from pathlib import Path

import pytest

from harborrl_agent_server.contract import ExitStatus
from harborrl_agent_server.outcomes import Cause, Evidence, judge

PAGE = Path(__file__).resolve().parents[2] / "docs" / "agent-server.md"

ACTED = Evidence(agent_started=True)
GRADED = replace(ACTED, verifier_started=True, rewards={"reward": 0.5}, agent_end=ExitStatus.SUBMITTED)
UNGRADED = replace(GRADED, rewards=None, exception="RewardFileNotFoundError")

EVIDENCE: dict[str, list[Evidence]] = {
    "flushed; client gone or server stopping": [
        replace(GRADED, cause=Cause.FLUSH),
        *(replace(UNGRADED, cause=cause) for cause in (Cause.FLUSH, Cause.CLIENT_GONE, Cause.SHUTDOWN)),
    ],
    "its session server ended or was started anew": [replace(GRADED, cause=Cause.SESSION_GONE)],
    "all budgets together spent": [replace(UNGRADED, cause=Cause.OVERRUN)],
    "sandbox killed by its own memory or storage limit": [
        replace(ACTED, fault="SandboxResourceError"),
        replace(ACTED, fault="SandboxResourceError", exception="SandboxResourceError"),
    ],
    "agent left nothing in its sandbox": [
        replace(ACTED, fault="SandboxUnusableError"),
        replace(GRADED, fault="SandboxUnusableError", exception="SandboxUnusableError"),
    ],
    "sandbox never ready": [
        Evidence(fault="SandboxStartError", exception="SandboxStartError"),
        Evidence(exception="EnvironmentStartTimeoutError"),
        Evidence(fault="SandboxUnusableError", exception="SandboxUnusableError"),
        Evidence(fault="SandboxResourceError", exception="SandboxResourceError"),
        Evidence(exception="AgentSetupTimeoutError"),
        Evidence(),
    ],
    "session server failed": [replace(ACTED, exception="ModelEndpointError", rewards={"reward": 1.0})],
    "this server's own volumes": [replace(ACTED, exception="OSError"), replace(ACTED, exception="MemoryError")],
    "sandbox or the connection to it lost": [
        replace(ACTED, fault="SandboxLostError", exception="SandboxLostError"),
        replace(GRADED, fault="SandboxTransportError", exception="SandboxTransportError"),
        replace(ACTED, fault="SandboxResourceError", exception="SandboxResourceError", never_asked=True),
    ],
    "a verifier's own sandbox": [
        replace(UNGRADED, exception=exception, fault=fault, verifiers_own_missing=True)
        for exception, fault in (
            ("EnvironmentStartTimeoutError", None),
            ("SandboxStartError", "SandboxStartError"),
            ("SandboxTransportError", "SandboxTransportError"),
            ("ValueError", None),
        )
    ],
    "agent used its whole time": [
        replace(seen, exception="AgentTimeoutError", agent_timed_out=True, agent_end=None)
        for seen in (GRADED, UNGRADED)
    ],
    "context full": [replace(seen, agent_end=ExitStatus.SEQUENCE_LENGTH_LIMIT) for seen in (GRADED, UNGRADED)],
    "`maxTurns` reached": [replace(seen, agent_end=ExitStatus.TURN_LIMIT) for seen in (GRADED, UNGRADED)],
    "graded (": [
        GRADED,
        replace(GRADED, exception="RuntimeError", after_grading=True),
        replace(GRADED, fault="SandboxResourceError"),
        *(replace(GRADED, cause=cause) for cause in (Cause.CLIENT_GONE, Cause.SHUTDOWN, Cause.OVERRUN)),
    ],
    "agent failed by itself": [
        replace(GRADED, exception="NonZeroAgentExitCodeError", agent_end=None),
        replace(ACTED, exception="ValueError"),
    ],
    "verifier left nothing": [
        UNGRADED,
        replace(UNGRADED, exception="VerifierTimeoutError"),
        replace(GRADED, rewards={"reward": float("nan")}),
        replace(GRADED, rewards={"a": 1.0, "b": 0.0}),
    ],
}
"""By how the first cell of the row begins."""


def rows() -> list[tuple[str, str, str, bool]]:
    """(what happened, exit_status, reward, kept) of each row."""
    section = PAGE.read_text().split("## Outcomes", 1)[1].split("\n## ", 1)[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return [(what, status.strip("`"), reward, kept == "kept") for what, status, reward, kept in cells[2:]]


def evidence_of(what: str) -> list[Evidence]:
    return next((seen for start, seen in EVIDENCE.items() if what.startswith(start)), [])


def test_every_row_has_evidence_and_every_evidence_a_row() -> None:
    whats = [what for what, *_ in rows()]
    assert [what for what in whats if not evidence_of(what)] == []
    assert [start for start in EVIDENCE if not any(what.startswith(start) for what in whats)] == []


@pytest.mark.parametrize(("what", "status", "reward", "kept"), rows())
def test_a_row_says_what_becomes_of_the_trial(what: str, status: str, reward: str, kept: bool) -> None:
    for seen in evidence_of(what):
        verdict = judge(seen)
        assert (verdict.exit_status, verdict.infra_failure) == (status, not kept), seen
        report = seen.rewards or {}
        number = report.get("reward", 0.0) if reward.startswith("verifier") else 0.0
        assert verdict.reward == number, seen
        assert bool(verdict.eval_report) is kept


def test_whatever_ended_a_run_from_outside_outranks_all_other_evidence_but_a_reward_that_was_there() -> None:
    for seen in [one for row in EVIDENCE.values() for one in row if one.cause is None]:
        assert judge(replace(seen, cause=Cause.FLUSH)).exit_status == "Aborted"
        assert judge(replace(seen, cause=Cause.SESSION_GONE)).infra_failure
        for cause in (Cause.CLIENT_GONE, Cause.SHUTDOWN, Cause.OVERRUN):
            then = judge(replace(seen, cause=cause))
            assert then.infra_failure if seen.rewards is None else then.reward == judge(seen).reward


def test_no_infrastructure_failure_has_a_number_and_each_says_why() -> None:
    for seen in [one for row in EVIDENCE.values() for one in row]:
        verdict = judge(seen)
        if verdict.infra_failure:
            assert (verdict.reward, verdict.eval_report) == (0.0, {})
            assert verdict.message
