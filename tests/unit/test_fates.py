"""What befell a trainer pod: seen while it can be, said in the attempt's record, and never made up."""

from typing import Any

import pytest

from harborrl_operator.fates import fate_of
from support import hrl
from support.hrl import condition, decide, message, then


def ended(reason: str, **more: Any) -> dict[str, Any]:
    return {"name": "ray-head", "image": "x", "state": {"terminated": {"exitCode": 137, "reason": reason, **more}}}


DISRUPTED = {"type": "DisruptionTarget", "status": "True", "message": "taken"}
FATES: list[tuple[str, dict[str, Any], str]] = [
    ("OOMKilled", {"containerStatuses": [ended("OOMKilled")]}, "raise trainer.resources.limits.memory"),
    ("Evicted", {"reason": "Evicted", "message": "low on resource: ephemeral-storage"}, "ephemeral-storage"),
    ("Evicted", {"conditions": [DISRUPTED | {"reason": "EvictionByEvictionAPI"}]}, "was evicted"),
    ("Preempted", {"conditions": [DISRUPTED | {"reason": "PreemptionByScheduler"}]}, "higher priority"),
    ("Preempted", {"reason": "Preempting"}, "higher priority"),
    ("NodeLost", {"conditions": [DISRUPTED | {"reason": "DeletionByTaintManager"}]}, "lost with its node"),
    ("NodeLost", {"reason": "NodeLost"}, "lost with its node"),
    ("NodeShutdown", {"reason": "Terminated"}, "shut down"),
    ("ContainerFailed", {"containerStatuses": [ended("Error", message="bind: in use")]}, "bind: in use"),
]


class TestALostHead:
    @pytest.mark.parametrize(("cause", "status", "says"), FATES, ids=[f"{f[0]}-{i}" for i, f in enumerate(FATES)])
    def test_says_what_befell_it_and_on_which_node(self, cause: str, status: dict[str, Any], says: str) -> None:
        job = hrl.job()
        head = hrl.trainer_pod("head", phase="Failed", ready=False)
        head["status"].update(status)
        decided = decide(job, hrl.running_world(job, trainer_pods=(head,)))
        record = decided.status.attempts[0]
        assert (record.failure_class, record.cause, record.node) == ("infrastructure", cause, "node-1")
        assert says in record.message
        assert "node-1" in record.message

    @pytest.mark.parametrize(
        ("cause", "conditions"),
        [("Preempted", [DISRUPTED | {"reason": "PreemptionByScheduler"}]), ("PodDeleted", [])],
    )
    def test_is_remembered_when_its_pod_is_gone_by_the_time_it_is_judged(
        self, cause: str, conditions: list[dict[str, Any]]
    ) -> None:
        job = hrl.job()
        going = hrl.trainer_pod("head", terminating=True)
        going["status"]["conditions"] += conditions
        running = then(job, decide(job, hrl.running_world(job, progress=hrl.progress())))
        seen = decide(running, hrl.running_world(job, trainer_pods=(going,), progress=hrl.progress()))
        assert seen.status.attempt == 1
        gone = decide(then(job, seen), hrl.running_world(job, trainer_pods=(), progress=hrl.progress()))
        assert (gone.status.attempts[0].cause, gone.status.attempts[0].node) == (cause, "node-1")

    def test_whose_node_does_not_confirm_its_end_is_not_waited_for_for_ever(self) -> None:
        job = hrl.job()
        running = then(job, decide(job, hrl.running_world(job, progress=hrl.progress())))
        going = (hrl.trainer_pod("head", terminating=True),)  # its grace ended a second ago
        seen = hrl.running_world(job, trainer_pods=going, progress=hrl.progress())
        assert decide(running, seen, after=50).status.attempt == 1
        lost = decide(running, seen, after=70)
        assert lost.status.attempts[0].cause == "NodeLost"
        second = then(job, lost)
        pod = hrl.preflight_pod(second, attempt=2, exit_code=0, message=hrl.PASSED)
        waits = decide(second, hrl.world(deployment=hrl.deployment(), preflight_pod=pod, trainer_pods=going), after=99)
        assert condition(waits, "TrainerReady") == ("False", "WaitingForOldPods")
        assert "quickstart-a1-head on node-1" in message(waits, "TrainerReady")
        assert "two drivers must not run at once" in message(waits, "TrainerReady")

    def test_with_its_cluster_is_told_apart_from_one_without(self) -> None:
        job = hrl.job()
        running = then(job, decide(job, hrl.running_world(job, progress=hrl.progress())))
        alone = hrl.world(deployment=hrl.deployment(), progress=hrl.progress(), progress_exists=True)
        assert decide(running, alone).status.attempts[0].cause == "ClusterDeleted"


def test_a_worker_that_was_killed_for_memory_explains_the_drivers_end() -> None:
    job = hrl.job()
    worker = hrl.trainer_pod("worker", ready=False, containerStatuses=[ended("OOMKilled") | {"name": "ray-worker"}])
    worker["spec"]["nodeName"] = "node-2"
    pods = (hrl.trainer_pod("head"), worker)
    report = hrl.progress("FAILED", failure="infrastructure", message="Ray: ActorDiedError")
    decided = decide(job, hrl.running_world(job, trainer_pods=pods, progress=report))
    record = decided.status.attempts[0]
    assert (record.cause, record.node) == ("OOMKilled", "node-2")
    assert record.message.startswith("Pod quickstart-a1-worker on node node-2 was killed for memory")
    assert record.message.endswith("Ray: ActorDiedError")


def finished(at: str, message: str = "") -> dict[str, Any]:
    return {
        "name": "ray-worker",
        "image": "x",
        "state": {"terminated": {"exitCode": 137, "finishedAt": at} | {"message": message}},
    }


class TestAWorkerThatEnded:
    def cause(self, **status: Any) -> str:
        worker = hrl.trainer_pod("worker", phase="Failed", ready=False, terminating=True, **status)
        worker["metadata"] |= {"deletionTimestamp": hrl.ago(10), "deletionGracePeriodSeconds": 30}
        fate = fate_of(worker, hrl.NOW)
        assert fate is not None
        return fate.cause

    def test_after_somebody_had_deleted_its_pod_was_deleted(self) -> None:
        assert self.cause(containerStatuses=[finished(hrl.ago(35))]) == "PodDeleted"

    def test_before_somebody_deleted_its_pod_failed_by_itself(self) -> None:
        assert self.cause(containerStatuses=[finished(hrl.ago(60))]) == "ContainerFailed"

    def test_for_memory_is_not_explained_by_whatever_it_logged_last(self) -> None:
        worker = hrl.trainer_pod("worker", ready=False, containerStatuses=[ended("OOMKilled", message="INFO started")])
        fate = fate_of(worker, hrl.NOW)
        assert fate is not None
        assert fate.message.endswith("raise trainer.resources.limits.memory.")

    def test_is_quoted_without_the_colours_of_its_log(self) -> None:
        said = "saved to: \x1b[1m/tmp/log\x1b[22m\x1b[26m"
        worker = hrl.trainer_pod("worker", phase="Failed", containerStatuses=[ended("Error", message=said)])
        fate = fate_of(worker, hrl.NOW)
        assert fate is not None
        assert fate.message.endswith("ended: saved to: /tmp/log")
