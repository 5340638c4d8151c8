"""The outcome table: infrastructure is never a number, and what the policy did always is."""

from dataclasses import replace

import pytest

from harborrl_agent_server.answers import LONGEST_MESSAGE, response_from
from harborrl_agent_server.contract import ExitStatus
from harborrl_agent_server.outcomes import Cause, Evidence, RewardError, judge, reward_from

GRADED = Evidence(agent_started=True, agent_end=ExitStatus.SUBMITTED, verifier_started=True, rewards={"reward": 1.0})


def evidence(**changes: object) -> Evidence:
    return Evidence(**{**vars(GRADED), **changes})


@pytest.mark.parametrize(
    ("seen", "status", "reward", "report"),
    [
        pytest.param(GRADED, "Submitted", 1.0, {"reward": 1.0}, id="a graded trial is submitted"),
        pytest.param(evidence(rewards={"reward": 0}), "Submitted", 0.0, {"reward": 0.0}, id="a zero is a number"),
        pytest.param(
            evidence(agent_end=ExitStatus.TURN_LIMIT),
            "TurnLimitExceeded",
            1.0,
            {"reward": 1.0},
            id="a turn limit keeps its reward",
        ),
        pytest.param(
            evidence(agent_end=ExitStatus.SEQUENCE_LENGTH_LIMIT, rewards=None, exception="RewardFileNotFoundError"),
            "SequenceLengthLimitExceeded",
            0.0,
            {"reward": 0.0},
            id="a length cut without reward is a zero",
        ),
        pytest.param(
            evidence(exception="AgentTimeoutError", agent_timed_out=True, agent_end=None),
            "TimeLimitExceeded",
            1.0,
            {"reward": 1.0},
            id="a time-out is graded",
        ),
        pytest.param(
            evidence(exception="AgentTimeoutError", agent_timed_out=True, agent_end=None, never_asked=True),
            "ModelEndpointFailed",
            0.0,
            {},
            id="time that was spent before the policy's first turn is not the policy's",
        ),
        pytest.param(
            evidence(exception="AgentTimeoutError", agent_timed_out=False, agent_end=None),
            "AgentError",
            1.0,
            {"reward": 1.0},
            id="a TimeoutError long before the limit is no time-out",
        ),
        pytest.param(
            evidence(exception="RuntimeError", after_grading=True),
            "Submitted",
            1.0,
            {"reward": 1.0},
            id="a failing stop costs nothing",
        ),
        pytest.param(
            evidence(exception="VerifierTimeoutError", rewards=None),
            "VerifierError",
            0.0,
            {"reward": 0.0},
            id="no verdict is a zero",
        ),
        pytest.param(
            evidence(exception="EnvironmentStartTimeoutError", rewards=None, verifiers_own_missing=True),
            "SandboxUnavailable",
            0.0,
            {},
            id="a verifier without the sandbox that it was to have is no zero",
        ),
        pytest.param(
            evidence(rewards={"a": 1, "b": 0}),
            "VerifierError",
            0.0,
            {"reward": 0.0},
            id="two unnamed keys are no reward",
        ),
        pytest.param(
            evidence(fault="SandboxResourceError", rewards=None),
            "AgentError",
            0.0,
            {"reward": 0.0},
            id="out of memory is the policy's doing",
        ),
        pytest.param(
            Evidence(exception="SandboxStartError", fault="SandboxStartError"),
            "SandboxUnavailable",
            0.0,
            {},
            id="no sandbox, no number",
        ),
        pytest.param(
            evidence(fault="SandboxLostError", rewards=None), "SandboxLost", 0.0, {}, id="a lost sandbox has no number"
        ),
        pytest.param(
            evidence(fault="SandboxTransportError", exception="SandboxTransportError", rewards={"reward": 0.0}),
            "SandboxLost",
            0.0,
            {},
            id="a zero that Harbor gave to a broken connection is none",
        ),
        pytest.param(
            evidence(fault="SandboxTransportError"),
            "Submitted",
            1.0,
            {"reward": 1.0},
            id="a transfer that worked again is forgiven",
        ),
        pytest.param(
            evidence(exception="ModelEndpointError", rewards=None, agent_end=None),
            "ModelEndpointFailed",
            0.0,
            {},
            id="the model went away",
        ),
        pytest.param(
            evidence(cause=Cause.FLUSH), "Aborted", 0.0, {}, id="a flushed trial is aborted even with a reward"
        ),
        pytest.param(
            evidence(cause=Cause.OVERRUN, rewards=None),
            "ServerError",
            0.0,
            {},
            id="a trial beyond all budgets is ours to answer for",
        ),
        pytest.param(
            evidence(cause=Cause.SHUTDOWN),
            "Submitted",
            1.0,
            {"reward": 1.0},
            id="a reward that was given is not lost to the server's stop",
        ),
        pytest.param(
            evidence(exception="OSError", rewards=None, verifier_started=False, agent_end=None),
            "ServerError",
            0.0,
            {},
            id="a full trials volume is no zero",
        ),
        pytest.param(
            evidence(exception="DownloadVerifierDirError", fault="OSError", rewards=None),
            "ServerError",
            0.0,
            {},
            id="nor is one that Harbor found another word for",
        ),
        pytest.param(
            evidence(fault="OSError"), "Submitted", 1.0, {"reward": 1.0}, id="a log that found no room is forgiven"
        ),
        pytest.param(
            evidence(exception="ValueError", rewards=None, verifier_started=False),
            "AgentError",
            0.0,
            {"reward": 0.0},
            id="other",
        ),
    ],
)
def test_evidence_decides_the_outcome(seen: Evidence, status: str, reward: float, report: dict[str, float]) -> None:
    verdict = judge(seen)
    assert (verdict.exit_status, verdict.reward, verdict.eval_report) == (status, reward, report)
    assert verdict.infra_failure is (report == {})


def test_a_message_is_one_line_of_a_length_that_can_be_read() -> None:
    names = judge(evidence(rewards={f"test {number}": 1.0 for number in range(50_000)}))
    assert len(response_from(names).message or "") == LONGEST_MESSAGE
    lines = replace(names, message="cannot remove:\n  it is\ta directory\n")
    assert response_from(lines).message == "cannot remove: it is a directory"


def test_a_named_key_is_the_reward_among_several() -> None:
    assert judge(evidence(rewards={"a": 1, "b": 0}), reward_key="a").reward == 1.0


def test_the_only_key_is_the_reward_whatever_its_name() -> None:
    assert reward_from({"score": 0.25}, None) == (0.25, {"score": 0.25})


@pytest.mark.parametrize(
    "rewards",
    [{}, {"reward": float("nan")}, {"reward": float("inf")}, {"reward": 10**400}, {"a": 1.0, "b": 1.0}],
)
def test_numbers_that_say_nothing_are_refused(rewards: dict[str, float]) -> None:
    with pytest.raises(RewardError):
        reward_from(rewards, None)


def test_a_failing_stop_is_told_as_a_warning() -> None:
    seen = evidence(exception="RuntimeError", message="daemon gone", after_grading=True)
    assert judge(seen).warnings == ("after grading: RuntimeError: daemon gone",)


def test_an_end_from_outside_after_grading_is_told_as_a_warning() -> None:
    assert judge(evidence(cause=Cause.CLIENT_GONE)).warnings == ("after grading: cancelled: client_gone",)
