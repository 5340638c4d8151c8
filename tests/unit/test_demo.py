"""What the demo tells is taken from the job and its metrics, and from nothing else."""

import json
from typing import Any

import pytest
from demo.learn import say
from demo.memory import used_gib
from demo.quickstart import closing
from demo.report import Evaluation, difference, evaluations, lines, rises, spread_share, steps
from demo.shell import ROOT, CommandError, Shell, shown
from demo.story import is_finished, minutes_taken, news, refusal, succeeded


def job(phase: str, *conditions: tuple[str, str, str, str], rollout: dict[str, Any] | None = None) -> dict[str, Any]:
    listed = [dict(zip(("type", "status", "reason", "message"), each, strict=True)) for each in conditions]
    return {"status": {"phase": phase, "conditions": listed, "rollout": rollout}}


def step(rollout: int, *, spread: int = 2, reward: float = 0.5) -> dict[str, Any]:
    return {"kind": "step", "rollout_id": rollout, "groups": 2, "groups_with_spread": spread, "reward_mean": reward}


def test_only_what_changed_is_news() -> None:
    before = job("Pending", ("Admitted", "False", "AwaitingPreflight", "waits"))
    now = job("Running", ("Admitted", "True", "Admitted", "ok"), rollout={"trained": 1, "total": 3, "rewardMean": 0.25})
    assert news(before, now) == [
        "phase Running",
        "  Admitted=True (Admitted) ok",
        "  trained 1 of 3 rollouts, mean reward 0.250",
    ]
    assert news(now, now) == []


def test_a_job_without_status_has_nothing_to_tell() -> None:
    assert news({}, {"metadata": {}}) == []
    assert not is_finished({})


def test_finished_is_not_yet_succeeded() -> None:
    failed = job("Failed", ("Finished", "True", "X", ""), ("Succeeded", "False", "X", ""))
    assert is_finished(failed)
    assert not succeeded(failed)


def test_the_time_of_a_run_is_the_jobs_own_whoever_watched() -> None:
    status = {"startedAt": "2026-01-01T10:00:00Z", "finishedAt": "2026-01-01T10:49:30Z"}
    assert minutes_taken({"status": status}) == 49.5


def test_a_refusal_is_told_with_reason_and_message() -> None:
    assert refusal(job("Refused", ("Admitted", "False", "NoTasks", "add tasks"))) == "NoTasks: add tasks"
    assert refusal(job("Running", ("Admitted", "True", "Admitted", ""))) is None


def test_a_torn_last_line_is_left_out_and_a_torn_line_elsewhere_is_an_error() -> None:
    whole = json.dumps(step(0))
    assert lines(f'{whole}\n{{"kind": "st') == [step(0)]
    with pytest.raises(json.JSONDecodeError):
        lines(f'{{"kind": "st\n{whole}\n')


def test_of_a_rollout_that_was_trained_twice_the_last_word_counts() -> None:
    assert steps([step(0), step(1, reward=0.1), step(1, reward=0.9)]) == [step(0), step(1, reward=0.9)]


def test_the_share_of_groups_with_spread_is_over_all_steps() -> None:
    assert spread_share([step(0, spread=2), step(1, spread=0)]) == 0.5
    assert spread_share([]) == 0.0


def test_a_rise_needs_more_than_two_standard_errors() -> None:
    before = Evaluation(0.2, 0.03, 144)
    assert rises(before, Evaluation(0.3, 0.03, 144))
    assert not rises(before, Evaluation(0.28, 0.03, 144))
    gain, error = difference(before, Evaluation(0.3, 0.04, 144))
    assert (round(gain, 3), round(error, 3)) == (0.1, 0.05)


def test_evaluations_are_found_by_the_number_of_trained_rollouts() -> None:
    line = {"kind": "eval", "rollout_id": 30, "reward_mean": 0.7, "reward_stderr": 0.02, "samples": 144}
    assert evaluations([step(0), line]) == {30: Evaluation(0.7, 0.02, 144)}


def test_the_verdict_does_not_hide_a_run_that_did_not_rise() -> None:
    assert "not more than two standard errors" in say(Evaluation(0.2, 0.03, 144), Evaluation(0.21, 0.03, 144))
    assert say(None, None) == "There are not two evaluations to compare."


def test_memory_in_use_is_total_less_available() -> None:
    assert used_gib("MemTotal:       4194304 kB\nMemFree: 1 kB\nMemAvailable:   1048576 kB\n") == 3.0


def test_what_to_try_next_begins_with_the_cluster_and_asks_no_program_for_it() -> None:
    """An empty KUBECONFIG means the user's own cluster to kubectl, and one of the next lines applies a manifest."""
    ended = {"metadata": {"namespace": "quickstart", "name": "quickstart", "uid": "0123456789"}}
    told = closing(ended, access="export KUBECONFIG=/state/kubeconfig PATH=/cache/bin:$PATH", whole="Whole time 9 s.")
    typed = [line.strip() for line in told.partition("Try next")[2].splitlines()[1:]]
    assert typed[0] == "export KUBECONFIG=/state/kubeconfig PATH=/cache/bin:$PATH"
    assert {line.split()[0] for line in typed[1:]} == {"kubectl", "make"}
    assert "$(" not in told


def test_a_command_is_shown_as_it_can_be_typed_in_the_checkout() -> None:
    assert shown([f"{ROOT}/.venv-demo/bin/python", "-m", "devcluster", "up"]) == (
        ".venv-demo/bin/python -m devcluster up"
    )
    assert shown(["/cache/bin/helm", "list"]) == "helm list"


def test_a_program_that_is_not_installed_is_told_in_one_line() -> None:
    for call in (Shell.here().run, Shell.here().read):
        with pytest.raises(CommandError, match="no-helm is not installed"):
            call(["no-helm", "list"])
