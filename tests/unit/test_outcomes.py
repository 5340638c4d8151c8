import math
from typing import Any

import pytest

from harborrl_trainer.rollout.outcomes import GRADED, INFRASTRUCTURE, OnAgentTimeout, TrialReply, Verdict, judge


def verdict(
    exit_status: str,
    *,
    on_agent_timeout: OnAgentTimeout = "grade",
    turns: int = 2,
    cut_by_length: bool = False,
    generation_aborted: bool = False,
    **fields: Any,
) -> Verdict:
    graded: dict[str, Any] = {"reward": 0.5, "eval_report": {"reward": 0.5}}
    reply = TrialReply(exit_status, **(graded | fields))
    return judge(
        reply,
        on_agent_timeout=on_agent_timeout,
        turns=turns,
        cut_by_length=cut_by_length,
        generation_aborted=generation_aborted,
    )


@pytest.mark.parametrize("exit_status", sorted(GRADED))
def test_what_the_policy_did_is_graded_by_the_verifier(exit_status: str) -> None:
    assert (verdict(exit_status).status, verdict(exit_status).reward) == ("completed", 0.5)


@pytest.mark.parametrize("exit_status", sorted(INFRASTRUCTURE))
def test_infrastructure_is_never_a_number_whatever_reward_comes_with_it(exit_status: str) -> None:
    result = verdict(exit_status, reward=1.0)
    assert (result.status, result.reward) == ("aborted", None)
    assert exit_status in result.cause


def test_the_infra_failure_flag_outweighs_a_graded_status() -> None:
    assert verdict("Submitted", infra_failure=True).status == "aborted"


def test_the_agent_servers_message_is_part_of_the_cause_on_one_line() -> None:
    assert verdict("TaskNotFound", message="no task\n'x'").cause == "TaskNotFound: no task 'x'"
    assert len(verdict("SandboxLost", message="y" * 9000).cause) < 400


def test_an_unknown_exit_status_is_aborted_and_named() -> None:
    assert verdict("Error: KeyError").cause == "unknown exit status 'Error: KeyError'"


@pytest.mark.parametrize("exit_status", ["TaskNotFound", "InvalidInstanceId", "InvalidAgent"])
def test_a_second_run_cannot_help_a_missing_task(exit_status: str) -> None:
    assert not verdict(exit_status).retryable


def test_a_second_run_may_help_a_lost_sandbox() -> None:
    assert verdict("SandboxLost").retryable


@pytest.mark.parametrize("reward", [None, math.nan, math.inf, "0.5", True, 1e300, 10**400])
def test_a_reward_that_is_no_finite_number_aborts_with_the_value_in_the_cause(reward: Any) -> None:
    result = verdict("Submitted", reward=reward)
    assert (result.status, result.reward, result.outcome) == ("aborted", None, "VerifierError")
    assert str(reward)[:40] in result.cause
    assert not result.retryable  # an agent could be run until it is graded


def test_a_zero_without_a_verifiers_report_is_no_zero() -> None:
    assert (
        verdict("Submitted", reward=0.0, eval_report={}).cause == "VerifierError: Submitted with an empty eval_report"
    )


def test_a_trial_without_a_model_call_teaches_nothing() -> None:
    assert verdict("Submitted", turns=0).status == "aborted"


def test_an_answer_that_the_engine_gave_up_half_way_is_not_trained_on_whatever_its_reward() -> None:
    result = verdict("Submitted", generation_aborted=True)
    assert (result.status, result.reward, result.outcome) == ("aborted", None, "GenerationAborted")
    assert result.retryable


def test_a_trial_out_of_time_whose_last_answer_was_cut_is_truncated() -> None:
    assert verdict("TimeLimitExceeded", cut_by_length=True).status == "truncated"


@pytest.mark.parametrize(
    ("policy", "eval_report", "expected"),
    [
        ("grade", {"reward": 0.5}, ("completed", 0.5)),
        ("grade", {}, ("completed", 0.0)),
        ("zero", {"reward": 0.5}, ("completed", 0.0)),
        ("abort", {"reward": 0.5}, ("aborted", None)),
    ],
)
def test_running_out_of_time_is_settled_by_on_agent_timeout(
    policy: OnAgentTimeout, eval_report: dict[str, float], expected: tuple[str, float | None]
) -> None:
    result = verdict("TimeLimitExceeded", on_agent_timeout=policy, eval_report=eval_report)
    assert (result.status, result.reward) == expected


def test_running_out_of_length_is_the_same_and_marked_truncated() -> None:
    assert verdict("SequenceLengthLimitExceeded").status == "truncated"
    assert verdict("SequenceLengthLimitExceeded", on_agent_timeout="abort").status == "aborted"


def test_a_last_turn_cut_by_its_token_limit_makes_the_sample_truncated_with_its_reward() -> None:
    assert verdict("Submitted", cut_by_length=True) == Verdict("truncated", 0.5, outcome="Submitted")
