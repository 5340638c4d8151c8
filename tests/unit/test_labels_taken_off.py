"""A pod that somebody takes labels off is still the job's: nothing starts beside it, and it is said."""

from typing import Any

import pytest

from harborrl_operator.draft import Plan
from harborrl_operator.models import HarborRLJob, JobStatus
from harborrl_operator.observe import observe
from harborrl_operator.observed import Observed, attempt_of, name_of
from harborrl_operator.reconcile import Reconciler
from support import hrl
from support.hrl import applied, condition, decide, message, then
from support.memory_cluster import MemoryCluster

OURS = {
    "harborrl.dev/job": "quickstart",
    "harborrl.dev/job-namespace": "research",
    "harborrl.dev/job-uid": hrl.UID,
    "harborrl.dev/role": "trainer",
    "harborrl.dev/attempt": "1",
}
KUBERAYS = {"ray.io/cluster": "quickstart-a1", "ray.io/node-type": "head"}


def trainer_pod(labels: dict[str, str], *, attempt: int = 1, owner: str = "RayCluster") -> dict[str, Any]:
    """A head as KubeRay makes it, with the labels that are left."""
    pod = hrl.trainer_pod("head", attempt=attempt)
    reference = {"kind": owner, "name": f"quickstart-a{attempt}", "uid": f"rc-{attempt}", "controller": True}
    pod["metadata"] |= {"labels": labels, "ownerReferences": [reference]}
    pod["spec"]["initContainers"] = [{"name": "supervisor"}]
    return pod


async def look(pod: dict[str, Any], job: HarborRLJob | None = None) -> Observed:
    cluster = MemoryCluster()
    cluster.put("Pod", "research", name_of(pod), pod)
    return await observe(cluster, job or hrl.job(), hrl.SETTINGS, hrl.NOW)


@pytest.mark.parametrize("labels", [KUBERAYS, {"ray.io/cluster": "quickstart-a1"}, OURS, OURS | KUBERAYS])
async def test_a_trainer_pod_is_seen_as_long_as_one_kind_of_label_is_left(labels: dict[str, str]) -> None:
    seen = await look(trainer_pod(labels))
    assert [name_of(pod) for pod in seen.pods_of_attempt(1)] == ["quickstart-a1-head"]


async def test_the_head_that_was_followed_is_seen_without_any_label() -> None:
    pod = trainer_pod({})
    running = hrl.job()
    followed = then(running, decide(running, hrl.running_world(running, trainer_pods=(pod,))))
    seen = await look(pod, followed)
    assert len(seen.trainer_pods) == 1


@pytest.mark.parametrize(
    "pod",
    [
        trainer_pod(KUBERAYS | {"harborrl.dev/job-uid": "of-a-deleted-job"}),
        trainer_pod(KUBERAYS, owner="ReplicaSet"),
        hrl.merged(trainer_pod(KUBERAYS), {"metadata.ownerReferences": []}),
    ],
    ids=["of a deleted job of the name", "of another controller", "of nobody"],
)
async def test_a_pod_that_only_calls_itself_one_of_the_cluster_is_none(pod: dict[str, Any]) -> None:
    assert (await look(pod)).trainer_pods == ()


def test_the_attempt_is_the_clusters_whatever_the_label_says() -> None:
    assert attempt_of(trainer_pod({}, attempt=3)) == 3
    assert attempt_of(trainer_pod({"harborrl.dev/attempt": "7"}, attempt=3)) == 3


async def test_a_preflight_pod_without_labels_is_read() -> None:
    pod = hrl.preflight_pod(hrl.job(), exit_code=0)
    pod["metadata"]["ownerReferences"] = [{"kind": "HarborRLJob", "name": "x", "uid": hrl.UID, "controller": True}]
    assert (await look(pod)).preflight_pod is not None


def test_a_head_that_lost_its_labels_ends_no_attempt_and_the_condition_names_them() -> None:
    job = hrl.job()
    running = then(job, decide(job, hrl.running_world(job, progress=hrl.progress())))
    seen = hrl.running_world(job, progress=hrl.progress(), trainer_pods=(trainer_pod(KUBERAYS),))
    decided = decide(running, seen)
    assert decided.status.phase == "Running"
    assert [attempt.outcome for attempt in decided.status.attempts] == ["Running"]
    assert "Labels of pod quickstart-a1-head were taken off or changed" in message(decided, "TrainerReady")
    assert "kubectl -n research label pod quickstart-a1-head --overwrite harborrl.dev/job=quickstart " in message(
        decided, "TrainerReady"
    )


def test_a_pod_with_all_its_labels_is_not_mentioned() -> None:
    job = hrl.job({"trainer.nodes": 1})
    decided = decide(job, hrl.running_world(job, trainer_pods=(trainer_pod(OURS | KUBERAYS),)))
    assert message(decided, "TrainerReady") == "All 1 trainer pods are ready."


async def second_attempt(*left: dict[str, Any]) -> Plan:
    """A pass before the second RayCluster is made; `left` is what the namespace still has of the first."""
    job = hrl.job(status=JobStatus(attempt=2))
    cluster = MemoryCluster()
    for pod in left:
        cluster.put("Pod", "research", name_of(pod), pod)
    seen = await observe(cluster, job, hrl.SETTINGS, hrl.NOW)
    passed = hrl.preflight_pod(job, attempt=2, exit_code=0, message=hrl.PASSED)
    return decide(job, hrl.world(deployment=hrl.deployment(job), preflight_pod=passed, trainer_pods=seen.trainer_pods))


async def test_the_next_attempt_waits_for_a_driver_that_no_label_of_ours_names() -> None:
    pod = trainer_pod(KUBERAYS)
    pod["metadata"]["deletionTimestamp"] = hrl.ago(1)
    waiting = await second_attempt(pod)
    assert condition(waiting, "TrainerReady") == ("False", "WaitingForOldPods")
    assert "quickstart-a1-head" in message(waiting, "TrainerReady")
    assert "RayCluster/quickstart-a2" not in applied(waiting)
    assert "RayCluster/quickstart-a2" in applied(await second_attempt())


async def test_a_ray_cluster_without_labels_is_the_jobs_by_its_owner_and_goes_with_its_attempt() -> None:
    cluster = MemoryCluster()
    owner = {"kind": "HarborRLJob", "name": "quickstart", "uid": hrl.UID, "controller": True}
    cluster.put("RayCluster", "research", "quickstart-a1", {"metadata": {"ownerReferences": [owner]}})
    seen = await observe(cluster, hrl.job(status=JobStatus(attempt=2)), hrl.SETTINGS, hrl.NOW)
    assert list(seen.ray_clusters) == ["quickstart-a1"]
    assert seen.strangers == ()


async def test_labels_that_somebody_took_off_are_put_back_where_an_apply_can() -> None:
    cluster = MemoryCluster()
    reconciler = Reconciler(cluster, hrl.SETTINGS, lambda: hrl.NOW)
    await reconciler.reconcile("research", "quickstart")
    server = cluster.server()
    assert server is not None
    server["metadata"]["labels"] = {}
    await reconciler.reconcile("research", "quickstart")
    server = cluster.server()
    assert server is not None
    assert server["metadata"]["labels"]["harborrl.dev/job-uid"] == hrl.UID
    assert cluster.condition("Admitted")["reason"] == "AwaitingPreflight"
