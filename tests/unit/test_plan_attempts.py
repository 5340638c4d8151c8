"""Each class of failure has its own budget, what is met twice is not tried again, and history says what an end cost."""

from typing import Any, ClassVar

import pytest

from harborrl_operator.attempts import MOST_LISTED
from harborrl_operator.draft import Plan
from harborrl_operator.models import HarborRLJob
from harborrl_operator.models.status import AttemptStatus
from support import hrl
from support.hrl import condition, decide, deleted, message, then


def failing(
    job: HarborRLJob,
    failure: str | None,
    says: str = "it broke",
    *,
    changes: dict[str, Any] | None = None,
    after: float = 0,
) -> Plan:
    """The pass that sees the current attempt's driver fail."""
    number = job.status.attempt
    report = hrl.progress("FAILED", changes, attempt=number, failure=failure, message=says)
    return decide(job, hrl.running_world(job, attempt=number, progress=report), after=after)


def failures(job: HarborRLJob, *classes: str) -> Plan:
    """Attempts that fail one after the other, each by other words and at another rollout."""
    decided = None
    for number, failure in enumerate(classes, start=1):
        decided = failing(job, failure, f"no {chr(96 + number)}", changes={"rollout.trained": number})
        job = then(job, decided)
    assert decided is not None
    return decided


class TestBudgets:
    def test_infrastructure_may_cost_as_many_attempts_as_max_attempts_says(self) -> None:
        job = hrl.job({"retries.maxAttempts": 3})
        assert failures(job, "infrastructure", "infrastructure").status.finished_at is None
        last = failures(job, "infrastructure", "infrastructure", "infrastructure")
        assert condition(last, "Failed") == ("True", "InfrastructureFailure")
        said = "Attempt 3: infrastructure failure 3 of 3, none is left: no c. This job starts no more: one of another"
        way_on = " name goes on after rollout 0 with resumeFrom: {job: quickstart} and the same storage.checkpoints."
        assert message(last, "Failed") == said + way_on

    def test_of_a_job_that_saved_nothing_nobody_is_told_to_go_on(self) -> None:
        last = failing(hrl.job({"retries.maxAttempts": 1}), "infrastructure", "no a", changes={"checkpoint": None})
        assert message(last, "Failed") == "no a"

    def test_a_lost_node_does_not_spend_the_applications_budget_nor_the_reverse(self) -> None:
        job = hrl.job({"retries.maxAttempts": 3})
        mixed = failures(job, "infrastructure", "application", "infrastructure")
        assert mixed.status.finished_at is None
        assert mixed.status.failures is not None
        assert (mixed.status.failures.infrastructure, mixed.status.failures.application) == (2, 1)
        last = failures(job, "infrastructure", "application", "infrastructure", "application")
        assert condition(last, "Failed") == ("True", "ApplicationFailure")

    def test_the_applications_budget_is_one_retry_unless_the_job_gives_more(self) -> None:
        assert failures(hrl.job(), "application", "application").status.finished_at is not None
        roomy = hrl.job({"retries.maxApplicationFailures": 3})
        assert failures(roomy, "application", "application").status.finished_at is None

    def test_a_full_volume_is_tried_again_only_where_the_job_asks_for_it(self) -> None:
        assert condition(failures(hrl.job(), "storage"), "Failed") == ("True", "StorageFailure")
        patient = failures(hrl.job({"retries.maxStorageFailures": 2}), "storage")
        assert patient.status.retry_at == "2026-01-01T12:05:00Z"

    def test_a_wrong_configuration_is_never_tried_again(self) -> None:
        roomy = {"retries.maxAttempts": 9, "retries.maxApplicationFailures": 9, "retries.maxStorageFailures": 9}
        assert condition(failures(hrl.job(roomy), "configuration"), "Failed") == ("True", "ConfigurationFailure")

    @pytest.mark.parametrize(
        ("failure", "first", "second"),
        [("infrastructure", "12:00:15", "12:00:30"), ("application", "12:01:00", "12:02:00")],
    )
    def test_a_pause_is_the_classs_own_and_doubles(self, failure: str, first: str, second: str) -> None:
        job = hrl.job({"retries.maxApplicationFailures": 9})
        assert failures(job, failure).status.retry_at == f"2026-01-01T{first}Z"
        assert failures(job, failure, failure).status.retry_at == f"2026-01-01T{second}Z"

    def test_a_start_at_0_beside_a_checkpoint_has_a_reason_of_its_own_and_no_retry(self) -> None:
        job = hrl.job({"retries.maxStorageFailures": 9})
        decided = failing(job, "storage", "would begin at 0", changes={"driver.cause": "RestartAtZero"})
        assert condition(decided, "Failed") == ("True", "RestartAtZero")
        assert decided.status.attempts[0].cause == "RestartAtZero"


class TestTheSameWall:
    ROOMY = hrl.job({"retries.maxAttempts": 9, "retries.maxApplicationFailures": 9})

    def twice(self, failure: str, says: tuple[str, str], **changes: tuple[Any, Any]) -> Plan:
        names = {"trained": "rollout.trained", "cause": "driver.cause"}
        first, second = ({names[key]: pair[index] for key, pair in changes.items()} for index in (0, 1))
        job = then(self.ROOMY, failing(self.ROOMY, failure, says[0], changes=first))
        return failing(job, failure, says[1], changes=second)

    def test_met_at_the_same_rollout_with_the_same_words_ends_the_job(self) -> None:
        ended = self.twice("application", ("KeyError: 'x' (pid 17)", "KeyError: 'x' (pid 40312)"))
        assert condition(ended, "Failed") == ("True", "ApplicationFailure")
        assert message(ended, "Failed").startswith("Attempts 1 and 2 ended alike at rollout 1; a third would too:")

    def test_met_further_on_is_another_one(self) -> None:
        assert self.twice("application", ("boom", "boom"), trained=(1, 2)).status.finished_at is None

    def test_of_other_words_is_another_one(self) -> None:
        assert self.twice("application", ("boom", "bang")).status.finished_at is None

    def test_is_nothing_that_infrastructure_builds(self) -> None:
        assert self.twice("infrastructure", ("agent server gone", "agent server gone")).status.finished_at is None

    def test_is_memory_whatever_the_class(self) -> None:
        ended = self.twice("infrastructure", ("killed", "killed"), cause=("OutOfMemory", "OutOfMemory"))
        assert condition(ended, "Failed") == ("True", "InfrastructureFailure")
        assert ended.status.attempts[-1].cause == "OutOfMemory"

    def test_is_no_kill_that_nobody_explains(self) -> None:
        killed = self.twice("infrastructure", ("killed", "killed"), cause=("DriverKilled", "DriverKilled"))
        assert killed.status.finished_at is None
        assert killed.status.attempts[-1].cause == "DriverKilled"


class TestHistory:
    def test_says_what_was_lost_since_the_newest_checkpoint(self) -> None:
        changes = {"rollout.trained": 5, "checkpoint.rolloutId": 1, "checkpoint.savedAt": hrl.ago(1800)}
        job = hrl.job({"trainer.engine": "miles", "trainer.gpusPerNode": 8})
        decided = failing(job, "infrastructure", changes=changes | {"driver.startedAt": hrl.ago(7200)})
        record = decided.status.attempts[0]
        assert (record.lost_rollouts, record.at_rollout, record.incarnations) == (3, 5, 1)
        assert record.lost_gpu_hours == pytest.approx(2 * 8 * 0.5, abs=0.01)
        assert decided.status.lost is not None
        assert (decided.status.lost.rollouts, decided.status.lost.gpu_hours) == (3, record.lost_gpu_hours)

    def test_counts_no_gpu_hours_without_gpus_and_all_time_without_a_checkpoint(self) -> None:
        changes = {"checkpoint": None, "driver.startedAt": hrl.ago(3600)}
        assert failing(hrl.job(), "infrastructure", changes=changes).status.attempts[0].lost_gpu_hours == 0
        gpus = failing(
            hrl.job({"trainer.engine": "miles", "trainer.gpusPerNode": 1}), "infrastructure", changes=changes
        )
        assert gpus.status.attempts[0].lost_gpu_hours == pytest.approx(2.0, abs=0.01)

    def test_loses_nothing_that_another_run_had_saved(self) -> None:
        """A run that goes on from another one begins at 42 and has no checkpoint of its own yet."""
        changes = {"checkpoint": None, "resume": {"firstRollout": 42}, "rollout.trained": 44}
        assert failing(hrl.job(), "infrastructure", changes=changes).status.attempts[0].lost_rollouts == 2

    def test_of_a_head_that_was_lost_before_its_driver_reported_loses_nothing_twice(self) -> None:
        first = failing(hrl.job(), "infrastructure", changes={"rollout.trained": 5})
        second = then(hrl.job(), first)
        seen = then(second, decide(second, hrl.running_world(second, attempt=2), after=30))
        lost = decide(seen, hrl.running_world(seen, attempt=2, trainer_pods=()), after=40)
        assert [record.lost_rollouts for record in lost.status.attempts] == [4, 0]
        assert lost.status.attempts[1].at_rollout is None

    def test_lists_the_newest_attempts_and_counts_all(self) -> None:
        old = [AttemptStatus(number=n, started_at=hrl.ago(9)) for n in range(1, 41)]
        status = hrl.job().status.model_copy(update={"attempt": 40, "attempts": old})
        job = hrl.job({"retries.maxAttempts": 99}, status=status)
        listed = failing(job, "infrastructure").status.attempts
        assert [record.number for record in listed] == list(range(41 - MOST_LISTED, 41))

    def test_keeps_a_traceback_of_a_megabyte_small(self) -> None:
        decided = failing(hrl.job(), "application", "x" * 1_000_000)
        assert len(decided.status.model_dump_json()) < 8_000


def test_the_next_attempt_knows_nothing_of_the_last_ones_cluster() -> None:
    decided = failing(hrl.job(), "infrastructure")
    assert decided.status.trainer is not None
    assert decided.status.trainer.model_dump(exclude_defaults=True) == {}
    assert decided.status.incarnation is None


def ended_at(moment: str) -> dict[str, Any]:
    end = {"exitCode": 137, "reason": "Error", "finishedAt": moment}
    return {"name": "ray-head", "image": "x", "state": {"terminated": end}}


class TestTheEndOfALostHead:
    """2 nodes of 8 GPUs; the driver ran for an hour and 6 minutes without a checkpoint when it was last heard of."""

    JOB = hrl.job({"trainer.engine": "miles", "trainer.gpusPerNode": 8})
    REPORT = hrl.progress(
        changes={"checkpoint": None, "driver.startedAt": hrl.ago(2 * 3600), "observedAt": hrl.ago(3240)}
    )
    HOURS = 2 * 8 * 1.1

    def lost(self, *pods: dict[str, Any], after: float = 0) -> AttemptStatus:
        seen = hrl.running_world(self.JOB, progress=self.REPORT)
        running = then(self.JOB, decide(self.JOB, seen))
        gone = hrl.running_world(self.JOB, trainer_pods=pods, progress=self.REPORT)
        return decide(running, gone, after=after).status.attempts[0]

    @pytest.mark.parametrize("later", [0, 8 * 3600])
    def test_that_nobody_saw_is_its_last_sign_of_life_however_late_its_absence_is_noticed(self, later: float) -> None:
        record = self.lost(after=later)
        assert record.lost_gpu_hours == pytest.approx(self.HOURS, abs=0.01)
        assert "was not seen: lost GPU time is counted to 2026-01-01T11:06:00Z, an estimate." in record.message

    def test_is_that_of_its_pod_where_that_can_be_seen(self) -> None:
        head = hrl.trainer_pod("head", phase="Failed", containerStatuses=[ended_at(hrl.ago(1800))])
        record = self.lost(head, after=3600)
        assert record.lost_gpu_hours == pytest.approx(2 * 8 * 1.5, abs=0.01)
        assert "estimate" not in record.message

    def test_is_remembered_from_the_pod_that_was_seen_going(self) -> None:
        running = then(self.JOB, decide(self.JOB, hrl.running_world(self.JOB, progress=self.REPORT)))
        going = hrl.running_world(
            self.JOB, trainer_pods=(hrl.trainer_pod("head", terminating=True),), progress=self.REPORT
        )
        seen = then(running, decide(running, going))
        gone = hrl.running_world(self.JOB, trainer_pods=(), progress=self.REPORT)
        record = decide(seen, gone, after=7200).status.attempts[0]
        assert record.lost_gpu_hours == pytest.approx(2 * 8 * 2, abs=0.01)
        assert "estimate" not in record.message

    def test_is_not_after_its_successor_began(self) -> None:
        running = then(self.JOB, decide(self.JOB, hrl.running_world(self.JOB, progress=self.REPORT)))
        successor = hrl.trainer_pod("head") | {
            "metadata": hrl.trainer_pod("head")["metadata"] | {"name": "head-2", "uid": "h2"}
        }
        successor["metadata"]["creationTimestamp"] = hrl.ago(1800)
        seen = hrl.running_world(self.JOB, trainer_pods=(successor,), progress=self.REPORT)
        record = decide(running, seen, after=7200).status.attempts[0]
        assert record.restarts == 1
        assert record.lost_gpu_hours == pytest.approx(2 * 8 * 1.5, abs=0.01)
        assert record.last_restart is not None
        assert "counted to 2026-01-01T11:30:00Z, an estimate" in record.last_restart.message

    def test_is_nobodys_concern_without_gpus(self) -> None:
        job = hrl.job()
        running = then(job, decide(job, hrl.running_world(job, progress=self.REPORT)))
        gone = decide(running, hrl.running_world(job, trainer_pods=(), progress=self.REPORT), after=7200)
        assert "estimate" not in gone.status.attempts[0].message


class TestAClusterThatIsKept:
    """`retries.keepClusterSeconds` is 600 and no attempt is left."""

    SPEC: ClassVar = {
        "retries.keepClusterSeconds": 600,
        "retries.maxAttempts": 1,
        "trainer.engine": "miles",
        "trainer.gpusPerNode": 8,
    }

    def failed(self, changes: dict[str, Any] | None = None) -> tuple[HarborRLJob, Plan]:
        job = hrl.job(self.SPEC | (changes or {}))
        decided = failing(job, "infrastructure")
        return then(job, decided), decided

    def test_outlives_the_job_and_everything_else_goes(self) -> None:
        job, decided = self.failed()
        assert deleted(decided) == [hrl.SERVER]
        kept = decide(job, hrl.running_world(job), after=10)
        assert condition(kept, "TrainerReady") == ("False", "KeptForDebugging")
        assert "until 2026-01-01T12:10:00Z" in message(kept, "TrainerReady")
        assert "2 pods, 16 GPUs held" in message(kept, "TrainerReady")
        assert kept.requeue_after == pytest.approx(590)
        assert kept.status.phase == "Failed"

    def test_goes_when_its_time_is_over_and_that_is_said(self) -> None:
        job, _ = self.failed()
        kept = then(job, decide(job, hrl.running_world(job), after=10))
        gone = decide(kept, hrl.running_world(job), after=600)
        assert "RayCluster/quickstart-a1" in deleted(gone)
        assert condition(gone, "TrainerReady") == ("False", "Released")

    def test_that_somebody_deleted_is_said_to_be_gone(self) -> None:
        job, _ = self.failed()
        kept = then(job, decide(job, hrl.running_world(job), after=10))
        assert condition(decide(kept, hrl.world(), after=20), "TrainerReady") == ("False", "Released")

    def test_goes_at_once_when_the_spec_no_longer_asks_for_it(self) -> None:
        job, _ = self.failed()
        edited = hrl.job(self.SPEC | {"retries.keepClusterSeconds": 0}, status=job.status)
        assert "RayCluster/quickstart-a1" in deleted(decide(edited, hrl.running_world(job), after=10))

    def test_has_a_time_of_its_own_beside_that_of_the_resource(self) -> None:
        job, _ = self.failed({"ttlSecondsAfterFinished": 60})
        kept = decide(job, hrl.running_world(job), after=10)
        assert deleted(kept) == [hrl.SERVER]
        assert kept.requeue_after == pytest.approx(50)
        assert "HarborRLJob/quickstart" in deleted(decide(job, hrl.running_world(job), after=60))

    def test_is_none_between_two_attempts_nor_after_a_success_or_a_deadline(self) -> None:
        job = hrl.job(self.SPEC | {"retries.maxAttempts": 2})
        assert "RayCluster/quickstart-a1" in deleted(failing(job, "infrastructure"))
        well = decide(job, hrl.running_world(job, progress=hrl.progress("SUCCEEDED")))
        assert "RayCluster/quickstart-a1" in deleted(well)
        late = hrl.job(self.SPEC | {"activeDeadlineSeconds": 5})
        begun = then(late, decide(late, hrl.world()))
        assert "RayCluster/quickstart-a1" in deleted(decide(begun, hrl.running_world(late), after=9))


class TestAWorkerThatWasReplacedLongAgo:
    """Deleted on Monday; the gang is whole again."""

    def replaced(self, trained: int) -> HarborRLJob:
        of = hrl.job({"retries.maxAttempts": 10})
        running = then(of, decide(of, hrl.running_world(of, progress=hrl.progress())))
        going = (hrl.trainer_pod("head"), hrl.trainer_pod("worker", terminating=True))
        seen = then(running, decide(running, hrl.running_world(of, progress=hrl.progress(), trainer_pods=going)))
        report = hrl.progress(changes={"rollout.trained": trained})
        return then(seen, decide(seen, hrl.running_world(of, progress=report), after=600))

    def ended(self, of: HarborRLJob, failure: str, trained: int) -> AttemptStatus:
        report = hrl.progress("FAILED", {"rollout.trained": trained}, failure=failure, message="NCCL error")
        return decide(of, hrl.running_world(of, progress=report), after=1200).status.attempts[0]

    def test_explains_what_failed_before_anything_more_was_trained(self) -> None:
        record = self.ended(self.replaced(trained=2), "infrastructure", 2)
        assert (record.cause, record.node) == ("PodDeleted", "node-1")
        assert "was deleted" in record.message

    def test_explains_nothing_once_the_run_has_trained_on(self) -> None:
        record = self.ended(self.replaced(trained=3), "infrastructure", 3)
        assert (record.cause, record.message) == ("DriverFailed", "NCCL error")

    def test_never_explains_a_bug(self) -> None:
        record = self.ended(self.replaced(trained=1), "application", 1)
        assert (record.cause, record.message) == ("DriverFailed", "NCCL error")
