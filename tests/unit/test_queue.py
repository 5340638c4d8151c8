"""A trainer in a queue: what is said while it waits, what is lost when its quota is taken, how it keeps its place."""

from typing import Any

import pytest

from harborrl_operator.draft import Plan
from harborrl_operator.models import HarborRLJob
from harborrl_operator.observed import Observed
from harborrl_operator.problems import pod_problem
from harborrl_operator.resolve import resolve
from harborrl_operator.resources import services
from harborrl_operator.resources.agent_server import deployment
from harborrl_operator.resources.preflight import pod as preflight_pod
from harborrl_operator.resources.ray_cluster import ray_cluster
from harborrl_operator.transitions import transitions
from harborrl_operator.workloads import words
from support import hrl, kueue
from support.hrl import applied, condition, decide, deleted, message, then

QUEUE = {"queueName": "h200", "workloadPriorityClass": "high"}


def job(changes: dict[str, Any] | None = None, **more: Any) -> HarborRLJob:
    return hrl.job({**QUEUE, **(changes or {})}, **more)


def cluster(of: HarborRLJob, *, suspend: bool | None = True, labels: dict[str, str] | None = None) -> dict[str, Any]:
    thing = hrl.ray_cluster(of, suspend=suspend)
    ours = {"kueue.x-k8s.io/queue-name": "h200", "kueue.x-k8s.io/priority-class": "high"}
    thing["metadata"]["labels"] = ours if labels is None else labels
    return thing


def held(of: HarborRLJob, conditions: list[dict[str, Any]] | None, **changes: Any) -> Observed:
    """Kueue keeps the cluster from having pods; without conditions there is no Workload."""
    known = {"rc-1": kueue.workload(conditions)} if conditions is not None else {}
    defaults: dict[str, Any] = {
        "ray_clusters": {"quickstart-a1": cluster(of)},
        "trainer_pods": (),
        "workloads": known,
        "progress": None,
    }
    return hrl.running_world(of, **(defaults | changes))


def running(of: HarborRLJob, **changes: Any) -> Observed:
    defaults = {"ray_clusters": {"quickstart-a1": cluster(of, suspend=False)}, "progress": hrl.progress()}
    return hrl.running_world(of, **(defaults | changes))


class TestLabels:
    def test_queue_and_priority_are_on_the_ray_cluster_and_on_nothing_else(self) -> None:
        resolved = resolve(job(), hrl.SETTINGS)
        labels = ray_cluster(resolved, 1, {})["metadata"]["labels"]
        assert labels["kueue.x-k8s.io/queue-name"] == "h200"
        assert labels["kueue.x-k8s.io/priority-class"] == "high"
        others = [
            deployment(resolved, {}),
            preflight_pod(resolved, 1, {}),
            services.trainer(resolved, 1),
            *services.agent_server(resolved, "1"),
            ray_cluster(resolved, 1, {})["spec"],
        ]
        assert "kueue.x-k8s.io" not in str(others)

    def test_without_a_queue_there_is_no_label_of_kueues(self) -> None:
        assert "kueue" not in str(ray_cluster(resolve(hrl.job(), hrl.SETTINGS), 1, {}))


class TestWaiting:
    def test_kueues_own_words_say_what_is_missing(self) -> None:
        decided = decide(job(), held(job(), kueue.waiting()))
        assert decided.status.phase == "Queued"
        assert condition(decided, "TrainerReady") == ("False", "Queued")
        assert "Queue h200: Pending: couldn't assign flavors to pod set head" in message(decided, "TrainerReady")
        assert decided.status.starting_since is None

    @pytest.mark.parametrize(
        ("workload", "says"),
        [
            (None, "no Workload"),
            (kueue.workload([]), "has not looked at it"),
            (
                kueue.workload([kueue.condition("QuotaReserved", "False", "Inadmissible", kueue.ABSENT)]),
                kueue.ABSENT,
            ),
            (
                kueue.workload(
                    [kueue.condition("QuotaReserved", "True", "QuotaReserved")],
                    admissionChecks=[{"name": "capacity", "state": "Pending", "message": "asked the cloud"}],
                ),
                "admission check capacity (Pending: asked the cloud)",
            ),
            (kueue.workload(kueue.preempted(), active=False), "spec.active of Workload raycluster-quickstart-a1-1752e"),
        ],
    )
    def test_each_thing_that_it_can_wait_for_is_named(self, workload: dict[str, Any] | None, says: str) -> None:
        assert says in words(workload)

    def test_an_admitted_cluster_that_stays_suspended_is_reported_after_two_minutes(self) -> None:
        fresh = decide(job(), held(job(), kueue.admitted(since=60)))
        assert condition(fresh, "TrainerReady") == ("False", "Queued")
        stuck = decide(job(), held(job(), kueue.admitted(since=121)))
        assert condition(stuck, "TrainerReady") == ("False", "AdmittedButSuspended")
        assert "deleting its Workload" in message(stuck, "TrainerReady")

    def test_a_cluster_that_kueue_took_by_itself_names_the_queue_that_it_was_given(self) -> None:
        plain = hrl.job()
        theirs = {"quickstart-a1": cluster(plain, labels={"kueue.x-k8s.io/queue-name": "default"})}
        decided = decide(plain, held(plain, kueue.waiting(), ray_clusters=theirs))
        assert "Queue default:" in message(decided, "TrainerReady")
        assert deleted(decided) == []

    def test_a_cluster_without_any_queue_that_is_held_back_says_what_to_set(self) -> None:
        plain = hrl.job()
        decided = decide(plain, held(plain, None, ray_clusters={"quickstart-a1": cluster(plain, labels={})}))
        assert "set spec.queueName" in message(decided, "TrainerReady")

    def test_another_queue_or_priority_takes_effect_at_once_while_nothing_runs(self) -> None:
        edited = job({"workloadPriorityClass": "low"})
        assert deleted(decide(edited, held(edited, kueue.waiting()))) == ["RayCluster/quickstart-a1"]
        assert deleted(decide(job(), held(job(), kueue.waiting()))) == []
        ending = held(edited, kueue.preempted(), trainer_pods=(hrl.trainer_pod(terminating=True),))
        assert deleted(decide(edited, ending)) == []

    def test_no_pass_applies_the_cluster_again(self) -> None:
        for conditions in (None, kueue.waiting(), kueue.admitted(), kueue.preempted()):
            assert "RayCluster/quickstart-a1" not in applied(decide(job(), held(job(), conditions)))


class TestPreemption:
    def preempted(self, **changes: Any) -> tuple[HarborRLJob, Plan]:
        """A running job whose quota is taken; `changes` are what its supervisor reported last."""
        before = then(job(), decide(job(), running(job())))
        report = hrl.progress("STOPPED", changes)
        return before, decide(before, held(before, kueue.preempted(), progress=report))

    def test_while_its_pods_end_it_is_said_to_save(self) -> None:
        before = then(job(), decide(job(), running(job())))
        ending = held(before, kueue.preempted(), trainer_pods=(hrl.trainer_pod(terminating=True),))
        decided = decide(before, ending)
        assert condition(decided, "TrainerReady") == ("False", "Evicted")
        assert "1 trainer pods save and end" in message(decided, "TrainerReady")
        assert condition(decided, "Progressing") == ("False", "NotRunning")

    def test_it_is_no_failure_and_kueues_reason_is_told(self) -> None:
        _, decided = self.preempted()
        assert decided.status.attempt == 1
        assert condition(decided, "TrainerReady") == ("False", "Evicted")
        assert "Preempted to accommodate a workload" in message(decided, "TrainerReady")
        assert "8 more needed" in message(decided, "TrainerReady")

    def test_with_all_work_saved_nothing_is_lost(self) -> None:
        _, decided = self.preempted()
        assert condition(decided, "Progressing") == ("False", "NotRunning")
        assert "goes on at rollout 1" in message(decided, "Progressing")

    def test_a_missed_checkpoint_is_said_with_the_loss_for_as_long_as_the_job_waits(self) -> None:
        before, decided = self.preempted(**{"rollout.trained": 4})
        assert condition(decided, "Progressing") == ("False", "CheckpointMissed")
        assert "3 trained rollouts are lost, it goes on at rollout 1" in message(decided, "Progressing")
        assert decided.status.attempts[-1].lost_rollouts == 3
        later = decide(then(before, decided), held(before, kueue.waiting(), progress=hrl.progress("STOPPED")), after=60)
        assert condition(later, "Progressing") == ("False", "CheckpointMissed")
        assert later.status.attempts[-1].lost_rollouts == 3

    def test_gpu_time_ends_with_the_grace_of_the_pods_however_late_that_is_seen(self) -> None:
        """Kueue took the cluster an hour after the start; checkpoint.graceSeconds is 30."""
        begun = job({"trainer.engine": "miles", "trainer.gpusPerNode": 8})
        before = then(begun, decide(begun, running(begun)))
        taken = cluster(before)
        moment = {"type": "RayClusterSuspending", "status": "True", "lastTransitionTime": hrl.ago(-3600)}
        taken["status"] = {"conditions": [moment]}
        report = hrl.progress(changes={"checkpoint": None})
        seen = held(before, kueue.preempted(), ray_clusters={"quickstart-a1": taken}, progress=report)
        lost = decide(before, seen, after=86_400).status.lost
        assert lost is not None
        assert lost.gpu_hours == pytest.approx(2 * 8 * 3630 / 3600, abs=0.01)

    def test_a_missed_checkpoint_is_an_event(self) -> None:
        before, decided = self.preempted(**{"rollout.trained": 4})
        told = [event.reason for event in transitions(before.status, decided.status)]
        assert "CheckpointMissed" in told
        assert "Evicted" in told

    def test_what_comes_up_after_it_is_the_next_incarnation_of_the_same_attempt(self) -> None:
        before, decided = self.preempted()
        waits = then(before, decided)
        again = running(waits, progress=hrl.progress("STOPPED"), trainer_pods=(hrl.trainer_pod(ready=False),))
        starting = decide(waits, again)
        assert (starting.status.phase, starting.status.attempt) == ("StartingTrainer", 1)
        resumed = decide(then(waits, starting), running(waits, progress=hrl.progress(incarnation=2)))
        assert resumed.status.phase == "Running"
        assert (resumed.status.attempt, resumed.status.incarnation) == (1, 2)

    def test_the_quota_is_given_back_when_the_job_ends(self) -> None:
        decided = decide(job(), running(job(), progress=hrl.progress("SUCCEEDED")))
        assert "RayCluster/quickstart-a1" in deleted(decided)


class TestFailuresInAQueue:
    LOST = "infrastructure"

    def failed(self, of: HarborRLJob, failure: str = LOST) -> Plan:
        return decide(of, running(of, progress=hrl.progress("FAILED", message="lost", failure=failure)))

    def test_a_failure_of_the_infrastructure_makes_new_pods_and_keeps_cluster_and_quota(self) -> None:
        decided = self.failed(job())
        assert deleted(decided) == ["Pod/quickstart-a1-head", "Pod/quickstart-a1-worker"]
        assert condition(decided, "TrainerReady") == ("False", "RestartingInPlace")
        assert (decided.status.attempt, decided.status.attempts[-1].restarts) == (1, 1)
        assert decided.status.starting_since is not None

    def test_it_is_a_warning_as_any_failure_of_the_infrastructure_is(self) -> None:
        ran = decide(job(), running(job(), progress=hrl.progress()))
        told = transitions(ran.status, self.failed(then(job(), ran)).status)
        assert [(one.kind, one.reason) for one in told if "Infrastructure failure 1" in one.message] == [
            ("Warning", "RestartingInPlace")
        ]

    def test_its_old_report_does_not_fail_it_again(self) -> None:
        before = then(job(), self.failed(job()))
        old = running(before, progress=hrl.progress("FAILED", failure=self.LOST), trainer_pods=())
        assert decide(before, old).status.attempts[-1].restarts == 1

    def test_a_dead_pod_of_before_the_restart_is_not_judged_again_while_its_node_keeps_it(self) -> None:
        of = job({"retries.maxAttempts": 9})
        before = then(of, self.failed(of))
        lingering = (hrl.trainer_pod(phase="Failed", terminating=True), hrl.trainer_pod("worker", phase="Failed"))
        for seconds in (10, 500, 900):
            decided = decide(before, running(before, trainer_pods=lingering), after=seconds)
            assert decided.status.attempts[-1].restarts == 1
            assert condition(decided, "TrainerReady") == ("False", "Starting")
            before = then(before, decided)

    def test_restarts_count_as_tries_and_the_last_one_ends_the_job(self) -> None:
        after = job({"retries.maxAttempts": 2})
        first = then(after, self.failed(after))
        second = running(first, progress=hrl.progress("FAILED", incarnation=2, message="again", failure=self.LOST))
        decided = decide(first, second)
        assert condition(decided, "Failed") == ("True", "InfrastructureFailure")
        assert "RayCluster/quickstart-a1" in deleted(decided)

    def test_a_failure_of_the_application_gives_the_quota_back(self) -> None:
        decided = self.failed(job(), "application")
        assert "RayCluster/quickstart-a1" in deleted(decided)
        assert decided.status.attempt == 2

    def test_without_a_queue_a_new_cluster_follows_after_a_pause(self) -> None:
        plain = hrl.job()
        report = hrl.progress("FAILED", message="lost", failure=self.LOST)
        decided = decide(plain, hrl.running_world(plain, progress=report))
        assert "RayCluster/quickstart-a1" in deleted(decided)
        assert condition(decided, "TrainerReady") == ("False", "BackingOff")

    def test_a_head_that_kuberay_put_in_the_place_of_a_lost_one_is_counted_and_gets_new_workers(self) -> None:
        before = then(job(), decide(job(), running(job())))
        head, worker = hrl.trainer_pod("head"), hrl.trainer_pod("worker")
        head["metadata"] |= {"name": "quickstart-a1-head-2", "uid": "h2", "creationTimestamp": hrl.ago(1)}
        decided = decide(before, running(before, trainer_pods=(head, worker)))
        assert deleted(decided) == ["Pod/quickstart-a1-worker"]
        assert decided.status.attempts[-1].restarts == 1
        assert decided.status.trainer is not None
        assert decided.status.trainer.head_pod == "quickstart-a1-head-2"
        assert condition(decided, "TrainerReady") == ("False", "RestartingInPlace")
        settled = decide(then(before, decided), running(before, trainer_pods=(head, worker), progress=hrl.progress()))
        assert settled.status.attempts[-1].restarts == 1

    def test_only_a_cluster_in_a_queue_may_have_its_head_replaced(self) -> None:
        def annotations(of: HarborRLJob) -> dict[str, str]:
            made: dict[str, str] = ray_cluster(resolve(of, hrl.SETTINGS), 1, {})["metadata"]["annotations"]
            return made

        assert annotations(hrl.job())["ray.io/disable-provisioned-head-restart"] == "true"
        assert "ray.io/disable-provisioned-head-restart" not in annotations(job())


def gated(age: float, queue: str = "default") -> dict[str, Any]:
    """A pod as Kueue's webhook leaves it."""
    blocked = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    pod = hrl.pod("quickstart-agent-x", age=age, conditions=blocked)
    pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    pod["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return pod


class TestDeadlock:
    def test_a_pod_that_kueue_holds_back_is_reported_with_its_queue_and_kueues_words(self) -> None:
        found = pod_problem(gated(11), hrl.NOW, "Pending: resource memory unavailable in ClusterQueue.")
        assert found is not None
        assert found.reason == "HeldByQueue"
        assert "in LocalQueue default. Pending: resource memory unavailable" in found.message

    def test_a_pod_that_waits_for_a_moment_is_no_trouble(self) -> None:
        assert pod_problem(gated(9), hrl.NOW) is None

    def test_where_kueue_manages_pods_without_a_queue_that_is_said(self) -> None:
        found = pod_problem(gated(11, queue=""), hrl.NOW)
        assert found is not None
        assert "in no queue" in found.message

    def test_an_agent_server_that_is_held_back_ends_the_job_at_its_start_deadline(self) -> None:
        held_back = gated(60)
        held_back["metadata"]["labels"] |= hrl.agent_pod(job())["metadata"]["labels"]
        seen = hrl.world(deployment=hrl.deployment(job(), ready=False), agent_pods=(held_back,))
        decided = decide(job(), seen)
        assert condition(decided, "AgentServerReady") == ("False", "HeldByQueue")
        late = decide(then(job(), decided), seen, after=10_000)
        assert condition(late, "Failed") == ("True", "StartDeadlineExceeded")
        assert "HeldByQueue" in message(late, "Failed")

    def test_nothing_is_queued_before_agent_server_and_preflight_have_passed(self) -> None:
        waits = decide(job(), hrl.world(deployment=hrl.deployment(job(), ready=False)))
        assert not [name for name in applied(waits) if name.startswith("RayCluster")]
