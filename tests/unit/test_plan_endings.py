"""Nothing holds GPUs for ever: what is broken and says nothing of it ends within a bounded time, and only that."""

from datetime import timedelta
from typing import Any

import pytest

from harborrl_operator.draft import Plan
from harborrl_operator.errors import ClusterError
from harborrl_operator.faults import with_failures
from harborrl_operator.models import HarborRLJob
from support import hrl
from support.hrl import condition, decide, deleted, message, then

DAY = 86_400
RETRIES = {"retries.maxAttempts": 10}


def running(changes: dict[str, Any] | None = None, **world: Any) -> HarborRLJob:
    """Its driver was seen running at noon."""
    job = hrl.job(RETRIES | (changes or {}))
    return then(job, decide(job, hrl.running_world(job, **({"progress": hrl.progress()} | world))))


def ended_by(decided: Plan) -> tuple[str | None, str | None]:
    """Class and cause of the attempt that this pass ended."""
    assert decided.status.attempt == 2, decided.status
    return decided.status.attempts[-1].failure_class, decided.status.attempts[-1].cause


class TestAReportThatCannotBeRead:
    def test_ends_an_attempt_whose_driver_ran_after_the_time_of_a_stall(self) -> None:
        job = running()
        seen = hrl.running_world(job, progress="{}")
        first = decide(job, seen, after=20 * DAY)
        assert (first.status.phase, first.delete) == ("Running", ())
        still = decide(then(job, first), seen, after=20 * DAY + 960)
        assert still.status == first.status
        late = decide(then(job, still), seen, after=20 * DAY + 961)
        assert ended_by(late) == ("infrastructure", "ReportLost")
        assert "limit 960 s" in late.status.attempts[-1].message

    def test_is_forgotten_once_one_can_be_read(self) -> None:
        job = running()
        job = then(job, decide(job, hrl.running_world(job, progress="{}"), after=100))
        job = then(job, decide(job, hrl.running_world(job, progress=hrl.progress()), after=900))
        decided = decide(job, hrl.running_world(job, progress="{}"), after=5000)
        assert decided.status.attempt == 1

    def test_does_not_stop_the_clock_of_a_start(self) -> None:
        job = hrl.job(RETRIES)
        seen = hrl.running_world(job, progress="{}")
        late = decide(then(job, decide(job, seen)), seen, after=1801)
        assert condition(late, "Failed") == ("True", "StartDeadlineExceeded")
        assert "ProgressUnreadable" in message(late, "Failed")

    @pytest.mark.parametrize(
        ("state", "failure", "reason"),
        [("SUCCEEDED", None, "Completed"), ("FAILED", "configuration", "ConfigurationFailure")],
    )
    def test_in_another_part_hides_no_verdict(self, state: str, failure: str | None, reason: str) -> None:
        job = running()
        report = hrl.progress(state, {"rollout.collected": "many", "driver.startedAt": 7}, failure=failure)
        decided = decide(job, hrl.running_world(job, progress=report), after=60)
        assert decided.status.reason == reason

    def test_in_part_keeps_what_the_last_one_said(self) -> None:
        job = running()
        report = hrl.progress(changes={"rollout.collected": "many", "checkpoint": 7})
        decided = decide(job, hrl.running_world(job, progress=report), after=60)
        assert condition(decided, "Progressing") == ("Unknown", "ProgressUnreadable")
        assert "rollout.collected" in message(decided, "Progressing")
        assert (decided.status.rollout, decided.status.step) == (job.status.rollout, "1/3")
        assert decided.status.checkpoint == job.status.checkpoint
        assert decided.status.checkpoint is not None

    def test_in_part_leaves_a_driver_that_says_that_it_runs_alone(self) -> None:
        job = running({"progress.onStall": "Restart"})
        report = hrl.progress(changes={"rollout.collected": "many"})
        seen = hrl.running_world(job, progress=report)
        job = then(job, decide(job, seen, after=60))
        assert decide(job, seen, after=DAY).status.phase == "Running"


class TestAHeadThatNoPassSaw:
    """The operator was away while it came up, ran and went."""

    def created(self) -> HarborRLJob:
        job = hrl.job(RETRIES)
        passed = hrl.preflight_pod(job, exit_code=0, message=hrl.PASSED)
        return then(job, decide(job, hrl.world(deployment=hrl.deployment(job), preflight_pod=passed)))

    def test_is_lost_when_its_report_is_there_and_it_is_not(self) -> None:
        job = self.created()
        seen = hrl.running_world(job, progress=hrl.progress(), trainer_pods=(hrl.trainer_pod("worker"),))
        decided = decide(job, seen, after=600)
        assert ended_by(decided) == ("infrastructure", "PodDeleted")
        assert "that reported incarnation 1 is gone" in decided.status.attempts[0].message

    def test_is_not_lost_while_it_ends(self) -> None:
        job = self.created()
        seen = hrl.running_world(job, progress=hrl.progress(), trainer_pods=(hrl.trainer_pod(terminating=True),))
        assert decide(job, seen, after=20).status.attempt == 1

    def test_is_not_lost_that_came_up_between_two_reads_of_one_pass(self) -> None:
        job = self.created()
        fresh = hrl.progress(changes={"observedAt": hrl.ago(-595)})
        assert decide(job, hrl.running_world(job, progress=fresh, trainer_pods=()), after=600).status.attempt == 1

    def test_is_not_that_of_an_incarnation_whose_cluster_was_taken_away(self) -> None:
        job = running()
        stopped = hrl.progress("STOPPED")
        asked = then(job, decide(job, hrl.running_world(job, progress=stopped)), suspend=True)
        released = decide(asked, hrl.running_world(job, progress=stopped), after=60)
        assert deleted(released)[0] == "RayCluster/quickstart-a1"
        resumed = then(asked, released, suspend=False)
        anew = hrl.ray_cluster(job)
        anew["metadata"]["uid"] = "rc-anew"
        seen = hrl.running_world(job, progress=stopped, ray_clusters={"quickstart-a1": anew}, trainer_pods=())
        decided = decide(resumed, seen, after=600)
        assert (decided.status.phase, decided.status.attempt) == ("StartingTrainer", 1)


class TestAWorkerThatDiesBesideARunningDriver:
    def dead(self) -> dict[str, Any]:
        worker = hrl.trainer_pod("worker", phase="Failed", ready=False)
        worker["status"]["reason"] = "Evicted"
        return worker

    def seen(self, job: HarborRLJob, changes: dict[str, Any] | None = None) -> Any:
        report = hrl.progress(changes=changes)
        return hrl.running_world(job, progress=report, trainer_pods=(hrl.trainer_pod(), self.dead()))

    def test_ends_the_attempt_that_collects_nothing_without_it(self) -> None:
        job = running()
        job = then(job, decide(job, self.seen(job), after=100))
        assert decide(job, self.seen(job), after=1900).status.attempt == 1
        late = decide(job, self.seen(job), after=1901)
        assert ended_by(late) == ("infrastructure", "Evicted")
        assert "quickstart-a1-worker (Failed, on node-1)" in late.status.attempts[0].message

    def test_is_what_the_stall_is_said_to_come_from(self) -> None:
        job = running()
        job = then(job, decide(job, self.seen(job), after=100))
        stalled = decide(job, self.seen(job), after=1000)
        assert condition(stalled, "Stalled") == ("True", "NoProgress")
        assert "slow, not lost" not in message(stalled, "Stalled")
        assert "was evicted" in message(stalled, "Stalled")

    def test_is_not_missed_by_a_driver_that_goes_on(self) -> None:
        job = running()
        job = then(job, decide(job, self.seen(job), after=100))
        dumped = self.seen(job, {"rollout.lastDumpTime": hrl.ago(-1500)})
        assert decide(job, dumped, after=3000).status.phase == "Running"

    def test_has_as_long_as_a_slow_run_takes_for_a_rollout(self) -> None:
        job = running()
        slow = {"rollout.medianSeconds": 2000.0, "rollout.lastDumpTime": hrl.ago(0)}
        job = then(job, decide(job, self.seen(job, slow), after=100))
        assert decide(job, self.seen(job, slow), after=6000).status.attempt == 1
        assert decide(job, self.seen(job, slow), after=6161).status.attempt == 2

    def test_is_forgotten_once_another_one_runs(self) -> None:
        job = running()
        job = then(job, decide(job, self.seen(job), after=100))
        job = then(job, decide(job, hrl.running_world(job, progress=hrl.progress()), after=1000))
        assert decide(job, self.seen(job), after=2500).status.attempt == 1

    def test_that_is_merely_not_ready_ends_nothing(self) -> None:
        job = running()
        pods = (hrl.trainer_pod(), hrl.trainer_pod("worker", ready=False))
        seen = hrl.running_world(job, progress=hrl.progress(), trainer_pods=pods)
        assert decide(then(job, decide(job, seen, after=100)), seen, after=DAY).status.attempt == 1


RESTART = {"progress.onStall": "Restart"}
NOTHING_YET = {"rollout": {"collected": 0, "trained": 0, "total": 3}, "agentServer.inFlight": 0}


class TestARestartOnAStall:
    """Trial ceiling 900, start deadline 1800; the stall is called after 960 s."""

    def decided(self, job: HarborRLJob, changes: dict[str, Any], after: float) -> Plan:
        return decide(job, hrl.running_world(job, progress=hrl.progress(changes=changes)), after=after)

    def test_leaves_a_run_that_still_loads_its_model(self) -> None:
        job = running(RESTART)
        assert self.decided(job, NOTHING_YET, 1800).status.attempt == 1
        assert ended_by(self.decided(job, NOTHING_YET, 1801)) == ("infrastructure", "Stalled")

    def test_leaves_one_whose_evaluation_takes_many_rounds(self) -> None:
        job = running(RESTART)
        for after in range(900, 9000, 900):
            oldest = {"agentServer": {"inFlight": 8, "oldestTrialSince": hrl.ago(890 - after)}}
            decided = self.decided(job, NOTHING_YET | oldest, after)
            assert decided.status.attempt == 1
            job = then(job, decided)
        assert condition(decided, "Stalled") == ("True", "AgentServerBusy")

    def test_leaves_one_whose_trials_end(self) -> None:
        paced = {"rollout.medianSeconds": 60.0, "agentServer.inFlight": 0}
        job = running(RESTART)
        job = then(job, self.decided(job, paced | {"rollout.trials": 7}, 950))
        assert self.decided(job, paced | {"rollout.trials": 7}, 1910).status.phase == "Running"
        assert self.decided(job, paced | {"rollout.trials": 7}, 1911).status.attempt == 2

    def test_ends_one_whose_trials_are_beyond_their_ceiling(self) -> None:
        job = running(RESTART)
        stuck = {"rollout.medianSeconds": 60.0, "agentServer": {"inFlight": 8, "oldestTrialSince": hrl.ago(-100)}}
        assert self.decided(job, stuck, 1060).status.attempt == 1
        late = self.decided(job, stuck, 1061)
        assert ended_by(late) == ("infrastructure", "Stalled")
        assert "the agent server hangs" in late.status.attempts[0].message


class TestTheBudgetOfInfrastructure:
    """Three attempts allowed, the default."""

    def lose(self, job: HarborRLJob, *, saved: int, at: float) -> HarborRLJob:
        """A node, of a run that had trained and saved this many rollouts."""
        attempt, changes = job.status.attempt, {"rollout.trained": saved, "checkpoint.rolloutId": saved - 1}
        report = hrl.progress(attempt=attempt, changes=changes)
        job = then(job, decide(job, hrl.running_world(job, attempt=attempt, progress=report), after=at - 10))
        failed = hrl.progress("FAILED", changes, attempt=attempt, failure="infrastructure", message=f"node {at}")
        return then(job, decide(job, hrl.running_world(job, attempt=attempt, progress=failed), after=at))

    def test_outlasts_any_number_of_nodes_that_a_run_of_weeks_loses(self) -> None:
        job = hrl.job()
        for week in range(1, 9):
            job = self.lose(job, saved=100 * week, at=7 * DAY * week)
            assert (job.status.phase, job.status.attempt) == ("StartingTrainer", week + 1)
            assert job.status.failures is not None
            assert job.status.failures.infrastructure == 1

    @pytest.mark.parametrize(("saved", "hours"), [((5, 5, 5), 50), ((5, 6, 7), 1)], ids=["saves nothing", "soon"])
    def test_is_spent_by_a_run_that_does_not_get_on_between_its_failures(
        self, saved: tuple[int, ...], hours: int
    ) -> None:
        job = hrl.job()
        for n, rollouts in enumerate(saved, 1):
            job = self.lose(job, saved=rollouts, at=3600 * hours * n)
        assert (job.status.phase, job.status.reason) == ("Failed", "InfrastructureFailure")


class TestARayClusterThatTheApiServerRefuses:
    ERROR = ClusterError("create RayCluster quickstart-a1", 422, "spec.tolerations[0].operator: Unsupported value")

    def refused(self, job: HarborRLJob, after: float) -> HarborRLJob:
        passed = hrl.preflight_pod(job, attempt=job.status.attempt, exit_code=0, message=hrl.PASSED)
        decided = decide(job, hrl.world(deployment=hrl.deployment(job), preflight_pod=passed), after=after)
        now = hrl.NOW + timedelta(seconds=after)
        status = with_failures(job.status, decided.status, [self.ERROR], now)
        return HarborRLJob(job.namespace, job.name, job.uid, job.generation, job.spec, status)

    def test_is_tried_again_until_the_start_deadline(self) -> None:
        job = self.refused(hrl.job(), 0)
        assert (job.status.phase, job.status.reason) == ("StartingTrainer", "ApplyFailed")
        assert self.refused(job, 1800).status.finished_at is None
        late = self.refused(job, 1801).status
        assert (late.phase, late.reason) == ("Failed", "StartDeadlineExceeded")
        assert "Unsupported value" in late.message

    def test_leaves_the_spec_that_has_to_be_corrected_free(self) -> None:
        trainer = self.refused(hrl.job(), 0).status.trainer
        assert trainer is not None
        assert trainer.ray_cluster is None

    def test_ends_only_the_attempt_of_a_run_that_had_begun(self) -> None:
        job = running()
        failed = hrl.progress("FAILED", failure="infrastructure")
        job = then(job, decide(job, hrl.running_world(job, progress=failed), after=100))
        late = self.refused(self.refused(job, 200), 2001)
        assert (late.status.attempt, late.status.reason) == (3, "ApplyFailed")
        assert late.status.attempts[-1].cause == "StartDeadline"
