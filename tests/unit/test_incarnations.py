"""A trainer whose pods are made anew within one RayCluster: which of them are old, and what goes again and again."""

from typing import Any

import pytest

from harborrl_operator.draft import Plan
from harborrl_operator.models import HarborRLJob, JobStatus
from harborrl_operator.observed import Observed
from support import hrl
from support.hrl import condition, decide, deleted, message, then

LOST = hrl.progress("FAILED", failure="infrastructure", message="NCCL")


def job(changes: dict[str, Any] | None = None) -> HarborRLJob:
    return hrl.job({"queueName": "h200", "retries.maxAttempts": 10, **(changes or {})})


def running(of: HarborRLJob, *, queue: dict[str, Any] | None = None, **changes: Any) -> Observed:
    """In its queue, admitted; `queue` is what KubeRay says of the RayCluster."""
    cluster = hrl.ray_cluster(of, suspend=False, **(queue or {}))
    cluster["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "h200"}
    defaults = {"ray_clusters": {"quickstart-a1": cluster}, "progress": hrl.progress()}
    return hrl.running_world(of, **(defaults | changes))


def pod(role: str, uid: str, *, age: float = 0, name: str = "", **changes: Any) -> dict[str, Any]:
    """With a name of its own, unless it is given one."""
    thing = hrl.trainer_pod(role, **changes)
    thing["metadata"] |= {"name": name or f"{role}-{uid}", "uid": uid, "creationTimestamp": hrl.ago(age)}
    return thing


def begun(**changes: Any) -> HarborRLJob:
    of = job()
    return then(of, decide(of, running(of, **changes)))


def job_with(of: HarborRLJob, status: JobStatus) -> HarborRLJob:
    return HarborRLJob(of.namespace, of.name, of.uid, of.generation, of.spec, status)


def restarts(decided: Plan) -> int:
    return decided.status.attempts[-1].restarts


class TestPodsThatWereToldToEnd:
    OLD = (pod("head", "h1", age=100, phase="Failed", ready=False), pod("worker", "w1", age=100))

    def restarted(self) -> tuple[HarborRLJob, Plan]:
        before = begun(trainer_pods=self.OLD)
        decided = decide(before, running(before, progress=LOST, trainer_pods=self.OLD), after=60)
        return then(before, decided), decided

    def test_are_told_again_in_every_pass_until_they_go(self) -> None:
        job, first = self.restarted()
        assert deleted(first) == ["Pod/head-h1", "Pod/worker-w1"]
        for seconds in (65, 70):
            again = decide(job, running(job, progress=LOST, trainer_pods=self.OLD), after=seconds)
            assert deleted(again) == deleted(first)
            assert restarts(again) == 1
            job = then(job, again)

    def test_are_forgotten_once_they_are_gone(self) -> None:
        job, _ = self.restarted()
        left = decide(job, running(job, progress=LOST, trainer_pods=self.OLD[1:]), after=65)
        assert left.status.trainer is not None
        assert left.status.trainer.ending_pods == ["w1"]
        gone = decide(then(job, left), running(job, progress=LOST, trainer_pods=()), after=70)
        assert gone.status.trainer is not None
        assert gone.status.trainer.ending_pods == []

    def test_are_told_again_also_while_the_job_is_suspended(self) -> None:
        job, _ = self.restarted()
        new = (pod("head", "h2"), self.OLD[1])
        suspending = then(job, decide(job, running(job, progress=LOST, trainer_pods=new), after=65), suspend=True)
        report = hrl.progress(incarnation=2)
        decided = decide(suspending, running(suspending, progress=report, trainer_pods=new), after=70)
        assert decided.status.phase == "Suspending"
        assert deleted(decided) == ["Pod/worker-w1"]

    @pytest.mark.parametrize("skew", [-3, -1, 0, 1, 3])
    def test_are_told_from_new_ones_whatever_the_api_servers_clock_says(self, skew: int) -> None:
        """Stamped up to 3 s before the restart was decided, by a clock that is behind ours."""
        job, _ = self.restarted()
        new = (pod("head", "h2", age=-60 - skew), pod("worker", "w2", age=-60 - skew))
        decided = decide(
            job, running(job, progress=hrl.progress(incarnation=2), trainer_pods=(*new, *self.OLD)), after=62
        )
        assert condition(decided, "TrainerReady") == ("True", "Ready")
        assert decided.status.trainer is not None
        assert decided.status.trainer.head_pod == "head-h2"
        assert deleted(decided) == ["Pod/head-h1", "Pod/worker-w1"]
        lost = decide(then(job, decided), running(job, trainer_pods=(new[1],)), after=70)
        assert restarts(lost) == 2


def test_the_old_workers_of_a_replaced_head_are_told_again_in_every_pass() -> None:
    before = begun(trainer_pods=(pod("head", "h1", age=100), pod("worker", "w1", age=100)))
    seen = running(before, trainer_pods=(pod("head", "h2", age=1), pod("worker", "w1", age=100)))
    replaced = decide(before, seen)
    assert deleted(replaced) == ["Pod/worker-w1"]
    again = decide(then(before, replaced), seen, after=5)
    assert deleted(again) == ["Pod/worker-w1"]
    assert restarts(again) == 1


class TestAHeadThatTookAnothersPlace:
    OLD = (pod("head", "h1", age=100, name="quickstart-a1-head"), pod("worker", "w1", age=100))
    NEW = (pod("head", "h2", age=1, name="quickstart-a1-head"), OLD[1])

    def test_is_known_by_its_uid_where_kuberay_gives_it_the_same_name(self) -> None:
        before = begun(trainer_pods=self.OLD)
        decided = decide(before, running(before, trainer_pods=self.NEW))
        assert (restarts(decided), deleted(decided)) == (1, ["Pod/worker-w1"])
        assert decided.status.trainer is not None
        assert (decided.status.trainer.head_uid, decided.status.trainer.released_incarnation) == ("h2", 1)
        stale = decide(then(before, decided), running(before, progress=LOST, trainer_pods=self.NEW[:1]), after=5)
        assert restarts(stale) == 1

    def test_is_the_same_head_to_a_status_that_an_older_operator_wrote(self) -> None:
        before = begun(trainer_pods=self.OLD)
        assert before.status.trainer is not None
        trainer = before.status.trainer.model_copy(update={"head_uid": None})
        older = job_with(before, before.status.model_copy(update={"trainer": trainer}))
        decided = decide(older, running(older, trainer_pods=self.OLD))
        assert restarts(decided) == 0
        assert decided.status.trainer is not None
        assert decided.status.trainer.head_uid == "h1"

    def test_may_have_reported_already_and_goes_on(self) -> None:
        """Its report must not be taken for the lost one's: nothing that it says would count."""
        before = begun(trainer_pods=self.OLD)
        seen = running(before, progress=hrl.progress(incarnation=2), trainer_pods=self.NEW)
        replaced = decide(before, seen)
        assert (restarts(replaced), deleted(replaced)) == (1, ["Pod/worker-w1"])
        new = running(before, progress=hrl.progress(incarnation=2), trainer_pods=(self.NEW[0], pod("worker", "w2")))
        settled = decide(then(before, replaced), new, after=5)
        assert (settled.status.phase, settled.status.incarnation, restarts(settled)) == ("Running", 2, 1)

    def test_is_kept_when_the_lost_ones_driver_had_failed(self) -> None:
        before = begun(trainer_pods=self.OLD)
        decided = decide(before, running(before, progress=LOST, trainer_pods=self.NEW))
        assert (restarts(decided), deleted(decided)) == (1, ["Pod/worker-w1"])
        assert decided.status.failures is not None
        assert decided.status.failures.infrastructure == 1

    def test_whose_driver_failed_too_is_charged_once_for_both(self) -> None:
        before = begun(trainer_pods=self.OLD)
        failed = hrl.progress("FAILED", incarnation=2, failure="infrastructure", message="NCCL")
        decided = decide(before, running(before, progress=failed, trainer_pods=self.NEW))
        assert restarts(decided) == 1
        again = decide(then(before, decided), running(before, progress=failed, trainer_pods=()), after=5)
        assert restarts(again) == 1


def let_start(since: float) -> dict[str, Any]:
    """KubeRay's word on a RayCluster that Kueue released `since` seconds ago."""
    changed = {"type": "RayClusterSuspended", "status": "False", "lastTransitionTime": hrl.ago(since)}
    return {"conditions": [changed]}


class TestAPreemptionAndANewAdmissionThatNoPassSaw:
    OLD = (pod("head", "h1", age=100), pod("worker", "w1", age=100))
    NEW = (pod("head", "h2", age=29), pod("worker", "w2", age=29))

    def running(self) -> HarborRLJob:
        return begun(trainer_pods=self.OLD, queue=let_start(101))

    @pytest.mark.parametrize(
        ("state", "incarnation"), [("RUNNING", 1), ("STOPPED", 1), ("FAILED", 1), ("RUNNING", 2), ("STARTING", 2)]
    )
    @pytest.mark.parametrize("pods", [NEW, ()], ids=["new pods", "no pods yet"])
    def test_is_no_failure_whatever_was_reported(
        self, pods: tuple[dict[str, Any], ...], state: str, incarnation: int
    ) -> None:
        before = self.running()
        report = hrl.progress(state, incarnation=incarnation, failure="infrastructure" if state == "FAILED" else None)
        seen = running(before, progress=report, trainer_pods=pods, queue=let_start(30))
        decided = decide(before, seen)
        assert (restarts(decided), decided.status.failures, deleted(decided)) == (0, None, [])
        assert decided.status.attempt == 1
        new = running(before, progress=hrl.progress(incarnation=2), trainer_pods=self.NEW, queue=let_start(30))
        settled = decide(then(before, decided), new, after=5)
        assert (settled.status.phase, settled.status.failures) == ("Running", None)

    def test_counts_what_it_cost_once(self) -> None:
        before = self.running()
        beyond = {"rollout.trained": 3}
        seen = running(before, progress=hrl.progress(changes=beyond), trainer_pods=self.OLD, queue=let_start(101))
        trained = then(before, decide(before, seen, after=1))
        again = running(before, progress=hrl.progress(changes=beyond), trainer_pods=self.NEW, queue=let_start(30))
        decided = decide(trained, again, after=5)
        assert decided.status.lost is not None
        assert decided.status.lost.rollouts == 2
        assert decide(then(trained, decided), again, after=6).status.lost == decided.status.lost

    def test_is_told_from_a_lost_head_by_kuberays_own_words(self) -> None:
        before = self.running()
        lost = decide(before, running(before, trainer_pods=self.NEW, queue=let_start(101)))
        assert restarts(lost) == 1

    def test_is_told_also_where_an_older_operator_saw_the_head(self) -> None:
        before = begun(trainer_pods=self.OLD)
        decided = decide(before, running(before, trainer_pods=self.NEW, queue=let_start(-5)), after=10)
        assert restarts(decided) == 0


def test_a_replaced_heads_end_is_told_as_it_was_seen() -> None:
    old, worker = pod("head", "h1", age=100), pod("worker", "w1", age=100)
    before = begun(trainer_pods=(old, worker))
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "evicting"}
    drained = pod("head", "h1", age=100, terminating=True)
    drained["status"]["conditions"].append(disrupted)
    seen = then(before, decide(before, running(before, trainer_pods=(drained, worker)), after=5))
    decided = decide(seen, running(seen, trainer_pods=(pod("head", "h2"), worker)), after=70)
    assert restarts(decided) == 1
    record = decided.status.attempts[-1].last_restart
    assert record is not None
    assert (record.cause, record.node, record.at_rollout) == ("Evicted", "node-1", 1)
    assert "evicting" in record.message


def test_an_attempt_that_restarted_and_then_succeeded_did_not_fail() -> None:
    before = begun()
    restarted = then(before, decide(before, running(before, progress=LOST), after=60))
    report = hrl.progress("SUCCEEDED", incarnation=2)
    record = decide(restarted, running(restarted, progress=report), after=600).status.attempts[-1]
    assert (record.outcome, record.failure_class, record.cause, record.message) == ("Succeeded", None, None, "")
    assert record.last_restart is not None
    assert (record.last_restart.cause, record.last_restart.message) == ("DriverFailed", "NCCL")


class TestTheSameWallWithinAQuota:
    def failed(self, of: HarborRLJob, incarnation: int, trained: int = 1, words: str = "CUDA out of memory") -> Plan:
        changes = {"driver.cause": "OutOfMemory", "rollout.trained": trained}
        state: dict[str, Any] = {"incarnation": incarnation, "failure": "infrastructure", "message": words}
        pods = (pod("head", f"h{incarnation}"), pod("worker", f"w{incarnation}"))
        started = hrl.progress(changes={"rollout.trained": trained}, incarnation=incarnation)
        runs = then(of, decide(of, running(of, progress=started, trainer_pods=pods), after=100 * incarnation))
        report = hrl.progress("FAILED", changes, **state)
        return decide(runs, running(runs, progress=report, trainer_pods=pods), after=100 * incarnation + 50)

    def test_ends_the_job_at_the_second_time(self) -> None:
        first = self.failed(job(), 1)
        assert restarts(first) == 1
        second = self.failed(then(job(), first), 2)
        assert condition(second, "Failed") == ("True", "InfrastructureFailure")
        assert "ended alike twice at rollout 1" in message(second, "Failed")
        assert "RayCluster/quickstart-a1" in deleted(second)

    def test_is_none_further_on_or_with_other_words(self) -> None:
        first = then(job(), self.failed(job(), 1))
        assert restarts(self.failed(first, 2, trained=2)) == 2
        assert restarts(self.failed(first, 2, words="host memory is full")) == 2

    def test_is_none_of_the_infrastructure_itself(self) -> None:
        before = begun()
        first = then(before, decide(before, running(before, progress=LOST), after=60))
        again = hrl.progress("FAILED", incarnation=2, failure="infrastructure", message="NCCL")
        assert restarts(decide(first, running(first, progress=again), after=120)) == 2
