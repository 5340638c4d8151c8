"""What counts towards a deadline, what does not, and who is missing when one passes."""

from typing import Any

import pytest

from harborrl_operator.active_time import active_seconds
from harborrl_operator.models import HarborRLJob
from support import hrl
from support.hrl import NOW, applied, condition, decide, deleted, message, then

DEADLINE = {"activeDeadlineSeconds": 1000, "queueName": "h200"}


def started(changes: dict[str, Any] | None = None) -> HarborRLJob:
    job = hrl.job(DEADLINE | (changes or {}))
    return then(job, decide(job, hrl.world()))


def held_back(job: HarborRLJob, *, since: float | None = None, until: float | None = None) -> Any:
    """Kueue's and KubeRay's word on the cluster; times in seconds from now, which `ago` counts backwards."""
    conditions = []
    if since is not None:
        conditions.append(
            {"type": "RayClusterSuspended", "status": "True", "lastTransitionTime": hrl.ago(-since), "reason": "x"}
        )
    if until is not None:
        conditions.append(
            {"type": "RayClusterSuspended", "status": "False", "lastTransitionTime": hrl.ago(-until), "reason": "x"}
        )
    suspended = until is None
    cluster = {"quickstart-a1": hrl.ray_cluster(job, suspend=suspended, conditions=conditions)}
    pods = () if suspended else (hrl.trainer_pod("head"), hrl.trainer_pod("worker"))
    return hrl.running_world(job, ray_clusters=cluster, trainer_pods=pods)


class TestActiveTime:
    def test_begins_with_the_first_attempt_and_passes_without_any_pass(self) -> None:
        job = started()
        assert job.status.active_since == "2026-01-01T12:00:00Z"
        late = decide(job, hrl.running_world(job, progress=hrl.progress()), after=1001)
        assert condition(late, "Failed") == ("True", "ActiveDeadlineExceeded")
        assert "suspended, queued and refused time not counted" in message(late, "Failed")

    def test_ends_a_job_before_its_preflight_without_a_word_of_what_still_runs(self) -> None:
        job = hrl.job({"activeDeadlineSeconds": 1000})
        seen = hrl.world(deployment=hrl.deployment(), preflight_pod=hrl.preflight_pod(job))
        job = then(job, decide(job, seen))
        assert condition(decide(job, seen), "Admitted") == ("Unknown", "AwaitingPreflight")
        late = decide(job, seen, after=1001)
        assert condition(late, "Failed") == ("True", "ActiveDeadlineExceeded")
        assert condition(late, "Admitted") == ("False", "ActiveDeadlineExceeded")
        assert message(late, "Admitted") == "The job ended before it was admitted."

    def test_asks_to_be_looked_at_when_it_is_up(self) -> None:
        job = started()
        seen = hrl.running_world(job, progress=hrl.progress())
        assert decide(job, seen, after=990).requeue_after == pytest.approx(11)

    def test_stands_still_while_the_job_is_suspended(self) -> None:
        job = then(started(), decide(started(), hrl.world()), suspend=True)
        suspended = then(job, decide(job, hrl.world(), after=400), suspend=True)
        assert (suspended.status.active_seconds, suspended.status.active_since) == (400, None)
        still = decide(suspended, hrl.world(), after=90_000)
        assert still.status.phase == "Suspended"
        resumed = then(
            suspended, decide(then(suspended, still, suspend=False), hrl.world(), after=90_000), suspend=False
        )
        assert active_seconds(resumed.status, NOW) == 400
        assert decide(resumed, hrl.world(), after=90_500).status.finished_at is None
        assert decide(resumed, hrl.world(), after=90_700).status.reason == "ActiveDeadlineExceeded"

    def test_goes_on_while_a_suspend_still_holds_its_pods(self) -> None:
        job = then(started(), decide(started(), hrl.world()), suspend=True)
        ending = decide(job, hrl.world(trainer_pods=(hrl.trainer_pod(terminating=True),)), after=400)
        assert (ending.status.active_seconds, ending.status.active_since) == (0, "2026-01-01T12:00:00Z")

    def test_stands_still_while_a_queue_holds_the_cluster_back(self) -> None:
        job = started()
        queued = then(job, decide(job, held_back(job), after=100))
        assert (queued.status.active_seconds, queued.status.active_since) == (100, None)
        assert decide(queued, held_back(job), after=90_000).status.finished_at is None

    def test_is_what_kuberay_says_when_the_operator_was_away_at_the_change(self) -> None:
        job = started()
        queued = then(job, decide(job, held_back(job, since=100), after=5000))
        assert queued.status.active_seconds == 100
        back = decide(queued, held_back(job, until=5600), after=6000)
        assert back.status.active_since == "2026-01-01T13:33:20Z"

    def test_leaves_out_a_wait_for_quota_that_no_pass_saw(self) -> None:
        """Seen running at 60 s, taken at some time, given back at 5000 s, seen again at 5100 s."""
        job = started()
        running = then(job, decide(job, hrl.running_world(job, progress=hrl.progress()), after=60))
        back = decide(running, held_back(running, until=5000), after=5100)
        assert back.status.finished_at is None
        assert (back.status.active_seconds, back.status.active_since) == (60, "2026-01-01T13:23:20Z")
        again = decide(then(running, back), held_back(running, until=5000), after=5200)
        assert (again.status.active_seconds, again.status.active_since) == (60, "2026-01-01T13:23:20Z")
        assert decide(then(running, back), held_back(running, until=5000), after=5941).status.finished_at is not None

    def test_of_a_cluster_that_no_queue_ever_held_begins_before_it(self) -> None:
        """KubeRay says of every cluster, a second after its creation, that it is not suspended."""
        job = started()
        seen = held_back(job, until=301)
        seen.ray_clusters["quickstart-a1"]["metadata"]["creationTimestamp"] = hrl.ago(-300)
        counted = decide(job, seen, after=400).status
        assert (counted.active_seconds, counted.active_since) == (300, "2026-01-01T12:05:01Z")

    def test_is_not_taken_from_a_change_of_an_earlier_stretch(self) -> None:
        job = started()
        assert decide(job, held_back(job, since=-50), after=100).status.active_seconds == 100

    def test_is_kept_when_the_job_ends(self) -> None:
        job = started()
        done = decide(job, hrl.running_world(job, progress=hrl.progress("SUCCEEDED")), after=300)
        assert (done.status.active_seconds, done.status.active_since) == (300, None)

    def test_is_none_for_a_job_that_was_never_admitted(self) -> None:
        refused = decide(hrl.job(DEADLINE | {"rollout.agentTrialTimeoutSeconds": 1}), hrl.world(), after=5)
        assert (refused.status.phase, refused.status.active_since) == ("Refused", None)


class TestTheEndOfItsTime:
    """trainer.gpusPerNode 8 on 2 nodes, 5 rollouts trained, the checkpoint after the second is half an hour old."""

    def test_costs_what_was_done_since_the_checkpoint(self) -> None:
        job = started({"trainer.engine": "miles", "trainer.gpusPerNode": 8, "activeDeadlineSeconds": 1800})
        changes = {"rollout.trained": 5, "checkpoint.rolloutId": 1, "checkpoint.savedAt": hrl.ago(0)}
        seen = hrl.running_world(job, progress=hrl.progress(changes=changes))
        late = decide(then(job, decide(job, seen, after=60)), seen, after=1801)
        (record,) = late.status.attempts
        assert (record.outcome, record.cause, record.at_rollout) == ("Failed", "DeadlineExceeded", 5)
        assert record.lost_rollouts == 3
        assert record.lost_gpu_hours == pytest.approx(2 * 8 * 1801 / 3600, abs=0.01)
        assert late.status.lost is not None
        assert late.status.lost.rollouts == 3
        assert "3 rollouts that were trained after the newest checkpoint are lost." in message(late, "Failed")
        assert record.message == message(late, "Failed")

    def test_leaves_the_record_of_an_attempt_that_had_ended_before(self) -> None:
        job = started({"retries.maxAttempts": 9, "activeDeadlineSeconds": 100})
        report = hrl.progress("FAILED", failure="infrastructure", message="no agent server")
        failed = then(job, decide(job, hrl.running_world(job, progress=report), after=95))
        late = decide(failed, hrl.world(), after=102)
        assert late.status.reason == "ActiveDeadlineExceeded"
        assert late.status.attempts == failed.status.attempts
        assert late.status.lost == failed.status.lost


class TestTheStartDeadline:
    def late(self, *pods: dict[str, Any]) -> str:
        job = hrl.job({"trainer.startDeadlineSeconds": 300, "trainer.nodes": 4})
        seen = hrl.running_world(job, trainer_pods=pods)
        decided = decide(then(job, decide(job, seen)), seen, after=301)
        assert condition(decided, "Failed") == ("True", "StartDeadlineExceeded")
        record = decided.status.attempts[-1]
        assert (record.outcome, record.cause) == ("Failed", "StartDeadline")
        assert record.message == message(decided, "Failed")[:512]
        return message(decided, "Failed")

    def test_names_each_pod_that_is_missing_and_counts_those_that_were_never_created(self) -> None:
        waiting = hrl.trainer_pod("worker", phase="Pending", ready=False)
        del waiting["spec"]["nodeName"]
        said = self.late(hrl.trainer_pod("head"), waiting)
        assert "Missing pods: quickstart-a1-worker (Pending, on no node), 2 not created." in said
        assert "quickstart-a1-head" not in said.split("Last obstacle")[0]

    def test_names_a_few_of_many(self) -> None:
        pods = [hrl.trainer_pod(f"worker-{n:02}", phase="Pending", ready=False) for n in range(12)]
        assert "worker-07 (Pending, on node-1), 4 more." in self.late(*pods)

    def test_says_nothing_of_pods_when_the_driver_alone_is_missing(self) -> None:
        pods = [hrl.trainer_pod(role) for role in ("head", "worker-1", "worker-2", "worker-3")]
        assert "Missing pods" not in self.late(*pods)


def held(of: HarborRLJob) -> dict[str, Any]:
    """The cluster, admitted by a queue."""
    cluster = hrl.ray_cluster(of, suspend=False)
    cluster["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "h200"}
    return {"quickstart-a1": cluster}


class TestTheStartDeadlineOfARunThatHadBegun:
    """Ten attempts allowed; the first one ran and was lost."""

    def lost(self, changes: dict[str, Any] | None = None, **world: Any) -> HarborRLJob:
        job = hrl.job({"retries.maxAttempts": 10} | (changes or {}))
        job = then(job, decide(job, hrl.running_world(job, progress=hrl.progress(), **world)))
        failed = hrl.progress("FAILED", failure="infrastructure", message="NCCL")
        return then(job, decide(job, hrl.running_world(job, progress=failed, **world), after=10))

    def test_ends_the_attempt_that_no_node_takes_and_releases_its_gang(self) -> None:
        job = self.lost()
        waiting = hrl.trainer_pod("head", attempt=2, phase="Pending", ready=False)
        seen = hrl.running_world(job, attempt=2, trainer_pods=(waiting,))
        late = decide(then(job, decide(job, seen, after=60)), seen, after=1900)
        assert (late.status.phase, late.status.reason, late.status.attempt) == ("StartingTrainer", "BackingOff", 3)
        assert late.status.failures is not None
        assert late.status.failures.infrastructure == 2
        record = late.status.attempts[-1]
        assert (record.number, record.failure_class, record.cause) == (2, "infrastructure", "StartDeadline")
        assert "quickstart-a2-head (Pending, on node-1), 1 not created" in record.message
        assert deleted(late) == ["RayCluster/quickstart-a2"]

    def test_gives_back_a_quota_that_has_no_nodes(self) -> None:
        job = hrl.job({"retries.maxAttempts": 10, "queueName": "h200"})
        job = self.lost({"queueName": "h200"}, ray_clusters=held(job))
        assert job.status.reason == "RestartingInPlace"
        waiting = hrl.trainer_pod("head", phase="Pending", ready=False)
        waiting["metadata"] |= {"creationTimestamp": hrl.ago(-15), "uid": "of-another-pod"}
        failed = hrl.progress("FAILED", failure="infrastructure", message="NCCL")
        seen = hrl.running_world(job, progress=failed, ray_clusters=held(job), trainer_pods=(waiting,))
        late = decide(job, seen, after=1900)
        assert (late.status.reason, late.status.attempt) == ("BackingOff", 2)
        assert deleted(late) == ["RayCluster/quickstart-a1"]

    def test_ends_the_attempt_whose_agent_server_does_not_come_back(self) -> None:
        job = self.lost()
        seen = hrl.world(deployment=hrl.deployment(ready=False))
        late = decide(then(job, decide(job, seen, after=60)), seen, after=1900)
        assert (late.status.phase, late.status.attempt) == ("StartingTrainer", 3)

    def test_fails_the_job_when_the_budget_is_spent(self) -> None:
        job = self.lost({"retries.maxAttempts": 2})
        seen = hrl.running_world(job, attempt=2, trainer_pods=())
        late = decide(then(job, decide(job, seen, after=60)), seen, after=1900)
        assert (late.status.phase, late.status.reason) == ("Failed", "InfrastructureFailure")
        assert "trainer.startDeadlineSeconds = 1800" in message(late, "Failed")

    def test_ends_no_resume_for_good(self) -> None:
        job = hrl.job({"retries.maxAttempts": 10})
        job = then(job, decide(job, hrl.running_world(job, progress=hrl.progress())), suspend=True)
        stopped = hrl.running_world(job, progress=hrl.progress("STOPPED"))
        job = then(job, decide(job, stopped, after=100), suspend=False)
        again = hrl.ray_cluster(job)
        again["metadata"]["uid"] = "of-another-cluster"
        clusters = {"quickstart-a1": again}
        seen = hrl.running_world(job, progress=hrl.progress("STOPPED"), trainer_pods=(), ray_clusters=clusters)
        late = decide(then(job, decide(job, seen, after=200)), seen, after=2100)
        assert (late.status.reason, late.status.attempt) == ("BackingOff", 2)

    def test_does_not_pass_while_a_node_that_is_cut_off_holds_a_pod(self) -> None:
        job = self.lost()
        head = hrl.trainer_pod("head", terminating=True)
        head["metadata"]["deletionTimestamp"] = hrl.ago(61)
        passed = hrl.preflight_pod(job, attempt=2, exit_code=0, message=hrl.PASSED)
        seen = hrl.world(deployment=hrl.deployment(job), preflight_pod=passed, trainer_pods=(head,))
        for after in (60, 4000, 90_000):
            decided = decide(job, seen, after=after)
            job = then(job, decided)
            assert (decided.status.reason, decided.status.attempt) == ("WaitingForOldPods", 2)
        free = hrl.world(deployment=hrl.deployment(job), preflight_pod=passed)
        assert "RayCluster/quickstart-a2" in applied(decide(job, free, after=90_010))


def test_pods_that_a_deleted_cluster_left_behind_are_ended_before_the_next_attempt() -> None:
    job = hrl.job({"retries.maxAttempts": 10})
    job = then(job, decide(job, hrl.running_world(job, progress=hrl.progress("FAILED", failure="infrastructure"))))
    passed = hrl.preflight_pod(job, attempt=2, exit_code=0, message=hrl.PASSED)
    orphan = hrl.trainer_pod("worker")
    decided = decide(
        job, hrl.world(deployment=hrl.deployment(job), preflight_pod=passed, trainer_pods=(orphan,)), after=60
    )
    assert deleted(decided) == ["Pod/quickstart-a1-worker"]
