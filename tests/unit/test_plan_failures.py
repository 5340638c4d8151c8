"""What goes wrong reaches a condition, is retried where that helps, and always ends."""

import json
from typing import Any

import pytest

from harborrl_operator.draft import Plan
from harborrl_operator.models import HarborRLJob
from support import hrl
from support.hrl import applied, condition, decide, deleted, message, then


def refusal(reason: str = "TaskNotFound", text: str = "2 of 6 prompts name no task") -> str:
    finding = {"check": "I6", "reason": reason, "severity": "refuse", "message": text}
    return json.dumps({"schemaVersion": 1, "ok": False, "findings": [finding, finding]})


class TestARefusingPreflight:
    def test_is_a_refusal_with_its_reason_and_message(self) -> None:
        job = hrl.job()
        pod = hrl.preflight_pod(job, exit_code=1, message=refusal())
        decided = decide(job, hrl.world(deployment=hrl.deployment(), preflight_pod=pod))
        assert decided.status.phase == "Refused"
        assert condition(decided, "Admitted") == ("False", "TaskNotFound")
        assert message(decided, "Admitted") == "2 of 6 prompts name no task And 1 more: TaskNotFound."
        assert "RayCluster/quickstart-a1" not in applied(decided)

    def test_with_an_unknown_reason_is_still_told(self) -> None:
        job = hrl.job()
        pod = hrl.preflight_pod(job, exit_code=1, message=refusal("Novel", "so"))
        decided = decide(job, hrl.world(deployment=hrl.deployment(), preflight_pod=pod))
        assert condition(decided, "Admitted") == ("False", "PreflightRefused")
        assert "Novel: so" in message(decided, "Admitted")

    def test_runs_again_after_a_minute_and_the_refusal_stays_on_display_meanwhile(self) -> None:
        job = hrl.job()
        pod = hrl.preflight_pod(job, exit_code=1, message=refusal(), ended=5)
        seen = hrl.world(deployment=hrl.deployment(), preflight_pod=pod)
        first = decide(job, seen)
        assert deleted(first) == [hrl.SERVER]
        second = decide(then(job, first), hrl.world(preflight_pod=pod), after=60)
        assert deleted(second) == ["Pod/quickstart-preflight"]
        starting = decide(then(job, second), hrl.world(), after=61)
        assert hrl.SERVER in applied(starting)
        assert (starting.status.phase, starting.status.reason) == ("Refused", "TaskNotFound")
        third = decide(then(job, second), hrl.world(deployment=hrl.deployment()), after=61)
        assert "Pod/quickstart-preflight" in applied(third)
        assert condition(third, "Admitted") == ("False", "TaskNotFound")
        assert third.status.phase == "Refused"

    def test_waits_longer_each_time(self) -> None:
        job = hrl.job()
        for number, pause in ((1, 60), (2, 120), (3, 240)):
            pod = hrl.preflight_pod(job, exit_code=1, message=refusal(), ended=0, uid=f"pf-{number}")
            seen = hrl.world(preflight_pod=pod)
            counted = then(job, decide(job, seen))
            assert deleted(decide(counted, seen, after=pause - 1)) == []
            assert deleted(decide(counted, seen, after=pause)) == ["Pod/quickstart-preflight"]
            job = counted

    def test_runs_again_at_once_when_the_spec_changes(self) -> None:
        job = hrl.job()
        pod = hrl.preflight_pod(job, exit_code=1, message=refusal())
        refused = decide(job, hrl.world(deployment=hrl.deployment(), preflight_pod=pod))
        edited = hrl.job({"model.path": "other"}, generation=2, status=refused.status)
        decided = decide(edited, hrl.world(deployment=hrl.deployment(), preflight_pod=pod))
        assert deleted(decided) == ["Pod/quickstart-preflight"]
        assert condition(decided, "Admitted") == ("Unknown", "AwaitingPreflight")

    def test_waits_without_limit_and_holds_nothing(self) -> None:
        job = hrl.job({"trainer.startDeadlineSeconds": 300, "activeDeadlineSeconds": 600})
        for day in range(90):
            ended = 5 - 86_400 * day
            pod = hrl.preflight_pod(job, exit_code=1, message=refusal(), ended=ended, uid=f"pf-{day}")
            decided = decide(job, hrl.world(deployment=hrl.deployment(), preflight_pod=pod), after=86_400 * day)
            job = then(job, decided)
            assert (decided.status.phase, deleted(decided)) == ("Refused", [hrl.SERVER])
            assert condition(decided, "AgentServerReady") == ("False", "NotStarted")

    def test_keeps_the_agent_server_that_it_objects_to(self) -> None:
        job = hrl.job()
        pod = hrl.preflight_pod(job, exit_code=1, message=refusal("CapacityTooSmall"))
        seen = hrl.world(deployment=hrl.deployment(), preflight_pod=pod)
        job = then(job, decide(job, seen))
        later = decide(job, seen, after=30)
        assert (later.status.phase, deleted(later)) == ("Refused", [])
        assert decide(job, seen, after=7200).status.finished_at is None

    def test_has_the_start_deadline_for_its_repetition(self) -> None:
        job = hrl.job()
        pod = hrl.preflight_pod(job, exit_code=1, message=refusal())
        job = then(job, decide(job, hrl.world(preflight_pod=pod)))
        job = then(job, decide(job, hrl.world(), after=100))
        assert job.status.phase == "Refused"
        assert decide(job, hrl.world(), after=1901).status.reason == "StartDeadlineExceeded"


def test_a_crashed_preflight_shows_its_last_line_and_is_retried() -> None:
    job = hrl.job()
    pod = hrl.preflight_pod(job, exit_code=137, message="loading\nKilled\n")
    decided = decide(job, hrl.world(deployment=hrl.deployment(), preflight_pod=pod))
    assert condition(decided, "Admitted") == ("False", "PreflightCrashed")
    assert message(decided, "Admitted").endswith("Killed")


class TestAFailedDriver:
    @pytest.mark.parametrize("failure", ["infrastructure", "application", None])
    def test_is_followed_by_another_attempt_after_a_pause(self, failure: str | None) -> None:
        job = hrl.job()
        decided = decide(
            job, hrl.running_world(job, progress=hrl.progress("FAILED", failure=failure, message="lost it"))
        )
        assert decided.status.attempt == 2
        assert deleted(decided) == ["RayCluster/quickstart-a1"]
        assert condition(decided, "TrainerReady") == ("False", "BackingOff")
        record = decided.status.attempts[0]
        assert (record.outcome, record.message, record.cause) == ("Failed", "lost it", "DriverFailed")

    @pytest.mark.parametrize(
        ("failure", "reason"), [("configuration", "ConfigurationFailure"), ("storage", "StorageFailure")]
    )
    def test_that_a_retry_cannot_help_fails_the_job(self, failure: str, reason: str) -> None:
        job = hrl.job()
        decided = decide(
            job, hrl.running_world(job, progress=hrl.progress("FAILED", failure=failure, message="bad lr"))
        )
        assert decided.status.phase == "Failed"
        assert condition(decided, "Failed") == condition(decided, "Finished") == ("True", reason)
        assert message(decided, "Failed").startswith("bad lr. This job starts no more")

    def test_on_the_last_attempt_fails_the_job(self) -> None:
        job = hrl.job({"retries.maxAttempts": 1})
        decided = decide(job, hrl.running_world(job, progress=hrl.progress("FAILED", failure="infrastructure")))
        assert condition(decided, "Failed") == ("True", "InfrastructureFailure")


class TestBetweenTwoAttempts:
    def failed(self) -> tuple[HarborRLJob, Plan]:
        job = hrl.job()
        return job, decide(job, hrl.running_world(job, progress=hrl.progress("FAILED", failure="infrastructure")))

    def test_nothing_starts_before_the_pause_is_over(self) -> None:
        job, decided = self.failed()
        seen = hrl.world(deployment=hrl.deployment(), progress=hrl.progress("FAILED"), progress_exists=True)
        assert applied(decide(then(job, decided), seen, after=10)) == []
        assert "Pod/quickstart-preflight" in applied(decide(then(job, decided), seen, after=20))

    def test_the_next_cluster_waits_until_no_pod_of_the_last_one_is_left(self) -> None:
        job, decided = self.failed()
        second = then(job, decided)
        pod = hrl.preflight_pod(second, attempt=2, exit_code=0, message=hrl.PASSED)
        old = hrl.trainer_pod("worker", terminating=True)
        seen = hrl.world(deployment=hrl.deployment(), preflight_pod=pod, trainer_pods=(old,))
        waiting_plan = decide(second, seen, after=20)
        assert condition(waiting_plan, "TrainerReady") == ("False", "WaitingForOldPods")
        free = hrl.world(deployment=hrl.deployment(), preflight_pod=pod)
        assert "RayCluster/quickstart-a2" in applied(decide(second, free, after=20))


class TestALostHead:
    def seen_before(self) -> HarborRLJob:
        job = hrl.job()
        return then(job, decide(job, hrl.running_world(job, progress=hrl.progress())))

    def test_is_an_infrastructure_failure(self) -> None:
        job = self.seen_before()
        decided = decide(job, hrl.running_world(job, trainer_pods=(), progress=hrl.progress()))
        assert decided.status.attempt == 2
        assert decided.status.attempts[0].failure_class == "infrastructure"
        assert "quickstart-a1-head" in decided.status.attempts[0].message

    def test_is_not_judged_while_its_pod_still_saves(self) -> None:
        job = self.seen_before()
        pods = (hrl.trainer_pod("head", terminating=True), hrl.trainer_pod("worker"))
        assert decide(job, hrl.running_world(job, trainer_pods=pods, progress=hrl.progress())).status.attempt == 1

    def test_after_a_final_verdict_changes_nothing(self) -> None:
        job = self.seen_before()
        decided = decide(job, hrl.running_world(job, trainer_pods=(), progress=hrl.progress("SUCCEEDED")))
        assert decided.status.phase == "Succeeded"

    def test_is_noticed_when_the_whole_cluster_is_gone(self) -> None:
        job = self.seen_before()
        decided = decide(job, hrl.world(deployment=hrl.deployment(), progress=hrl.progress(), progress_exists=True))
        assert decided.status.attempt == 2

    def test_that_ended_by_itself_says_its_last_words(self) -> None:
        job = hrl.job()
        ended = {"exitCode": 1, "message": "bind: address already in use"}
        statuses = [{"name": "ray-head", "image": "x", "state": {"terminated": ended}}]
        pods = (hrl.trainer_pod("head", phase="Failed", ready=False, containerStatuses=statuses),)
        decided = decide(job, hrl.running_world(job, trainer_pods=pods))
        assert "address already in use" in decided.status.attempts[0].message


@pytest.mark.parametrize(
    ("report", "says"),
    [
        ("{", "Invalid JSON"),
        ("[]", "Input should be an object"),
        ('{"attempt": 1, "incarnation": 1}', "driver: Field required"),
        (hrl.progress(changes={"rollout.lastDumpTime": "2026-01-01T00:03:10"}), "offset from UTC"),
        (hrl.progress(changes={"rollout.collected": "many"}), "rollout.collected"),
    ],
)
def test_a_report_that_cannot_be_read_is_said_and_stops_nothing_at_once(report: str, says: str) -> None:
    job = hrl.job()
    running = then(job, decide(job, hrl.running_world(job, progress=hrl.progress())))
    decided = decide(running, hrl.running_world(job, progress=report), after=100_000)
    assert condition(decided, "Progressing") == ("Unknown", "ProgressUnreadable")
    assert says in message(decided, "Progressing")
    assert (decided.status.phase, decided.delete) == ("Running", ())


def test_a_mean_of_nothing_is_no_number_for_the_api_server() -> None:
    job = hrl.job()
    report = hrl.progress(changes={"rollout.rewardMean": float("nan"), "rollout.medianSeconds": float("inf")})
    rollout = decide(job, hrl.running_world(job, progress=report)).status.rollout
    assert rollout is not None
    assert (rollout.reward_mean, rollout.median_seconds) == (None, None)


@pytest.mark.parametrize(
    "said",
    ['{"findings": null}', '{"level": "error", "msg": "cannot import torch"}', '{"schemaVersion": 1, "ok": true}'],
)
def test_a_preflight_that_ends_with_other_json_has_crashed(said: str) -> None:
    job = hrl.job()
    pod = hrl.preflight_pod(job, exit_code=1, message=said)
    decided = decide(job, hrl.world(deployment=hrl.deployment(), preflight_pod=pod))
    assert condition(decided, "Admitted") == ("False", "PreflightCrashed")
    assert said in message(decided, "Admitted")


@pytest.mark.parametrize("state", ["FAILED", "STOPPED"])
def test_a_preemption_that_no_pass_saw_begin_costs_no_attempt(state: str) -> None:
    """The operator was away while the queue took the cluster and the driver ended."""
    job = hrl.job()
    running = then(job, decide(job, hrl.running_world(job, progress=hrl.progress())))
    taken = {"quickstart-a1": hrl.ray_cluster(job, suspend=True)}
    decided = decide(running, hrl.running_world(job, ray_clusters=taken, trainer_pods=(), progress=hrl.progress(state)))
    assert condition(decided, "TrainerReady") == ("False", "Queued")
    back = hrl.running_world(job, trainer_pods=(), progress=hrl.progress(state))
    assert decide(then(job, decided), back).status.attempt == 1


def test_a_head_that_still_starts_is_not_blamed_for_the_stop_of_the_one_before() -> None:
    job = hrl.job()
    starting = (hrl.trainer_pod("head", phase="Pending", ready=False),)
    seen = hrl.running_world(job, progress=hrl.progress("STOPPED"), trainer_pods=starting)
    assert decide(then(job, decide(job, seen)), seen, after=600).status.attempt == 1


def test_a_driver_that_was_stopped_by_hand_does_not_leave_an_idle_head_until_the_deadline() -> None:
    job = hrl.job()
    seen = hrl.running_world(job, progress=hrl.progress("STOPPED", message="Stopped by its user."))
    first = decide(job, seen)
    assert first.status.attempt == 1
    later = decide(then(job, first), seen, after=91)
    assert later.status.attempt == 2
    assert "Stopped by its user." in later.status.message


class TestAStall:
    def after(self, seconds: float, changes: dict[str, Any] | None = None, in_flight: int = 0) -> Plan:
        job = hrl.job(changes)
        report = hrl.progress(changes={"rollout.medianSeconds": 40.0, "agentServer.inFlight": in_flight})
        seen = hrl.running_world(job, progress=report)
        return decide(then(job, decide(job, seen)), seen, after=seconds)

    def test_is_not_called_before_the_trial_ceiling(self) -> None:
        assert condition(self.after(900), "Stalled") == ("False", "Moving")

    def test_says_that_nothing_moves(self) -> None:
        assert condition(self.after(1000), "Stalled") == ("True", "NoProgress")

    def test_tells_slow_trials_from_a_dead_run(self) -> None:
        assert condition(self.after(1000, in_flight=8), "Stalled") == ("True", "AgentServerBusy")

    def test_says_since_when_so_that_a_later_pass_has_nothing_to_write(self) -> None:
        assert self.after(1000).status.message == self.after(1030).status.message

    def test_restarts_the_attempt_when_the_job_wants_it(self) -> None:
        assert self.after(1000, {"progress.onStall": "Restart"}).status.attempt == 2


def test_the_active_deadline_ends_a_running_job() -> None:
    job = hrl.job({"activeDeadlineSeconds": 3600})
    started = then(job, decide(job, hrl.world()))
    decided = decide(started, hrl.running_world(job, progress=hrl.progress()), after=3601)
    assert condition(decided, "Failed") == ("True", "ActiveDeadlineExceeded")


def test_a_driver_that_fails_by_itself_in_every_attempt_fails_the_job() -> None:
    job = hrl.job({"retries": {"maxApplicationFailures": 1}})
    seen = hrl.running_world(job, progress=hrl.progress("FAILED", message="loss is NaN", failure="application"))
    decided = hrl.decide(job, seen)
    assert hrl.condition(decided, "Failed") == ("True", "ApplicationFailure")
    assert "loss is NaN" in hrl.message(decided, "Failed")


def test_a_trainer_pod_that_ended_is_named_with_its_last_words() -> None:
    ended = {"terminated": {"exitCode": 0}}
    status = {"name": "ray-worker", "image": "i", "state": ended}
    worker = hrl.trainer_pod("worker", phase="Failed", ready=False, containerStatuses=[status], message="evicted")
    decided = hrl.decide(hrl.job(), hrl.running_world(hrl.job(), trainer_pods=(hrl.trainer_pod(), worker)))
    assert hrl.condition(decided, "TrainerReady") == ("False", "PodFailed")
    assert "quickstart-a1-worker failed: evicted" in hrl.message(decided, "TrainerReady")


def test_a_driver_without_a_rollout_yet_is_progressing() -> None:
    seen = hrl.running_world(hrl.job(), progress=hrl.progress(changes={"rollout": None}))
    assert hrl.condition(hrl.decide(hrl.job(), seen), "Progressing") == ("True", "WaitingForFirstRollout")


def test_between_two_attempts_status_names_no_cluster_so_that_the_spec_may_be_corrected() -> None:
    """The API server's transition rules go by this field (docs/decisions/0023)."""
    job = hrl.job()
    running = hrl.decide(job, hrl.running_world(job, progress=hrl.progress()))
    assert running.status.trainer is not None
    assert running.status.trainer.ray_cluster == "quickstart-a1"
    failed = hrl.running_world(job, progress=hrl.progress("FAILED", message="x", failure="application"))
    between = hrl.decide(hrl.then(job, running), failed).status
    assert (between.attempt, between.trainer and between.trainer.ray_cluster) == (2, None)
