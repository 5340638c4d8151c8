"""A trainer of a queue that nothing held back: without Kueue the label has no effect, which is said."""

from typing import Any

import pytest

from harborrl_operator.observed import KueueAnswer
from support import hrl, kueue
from support.hrl import condition, decide, message

JOB = hrl.job({"queueName": "h200"})
LABELS = {"kueue.x-k8s.io/queue-name": "h200"}


def said(
    answer: KueueAnswer | None, *, age: float, queue: bool = True, released: bool = False, workload: bool = False
) -> str:
    """TrainerReady while one of two pods is ready."""
    ray = hrl.ray_cluster(JOB, suspend=False, age=age)
    ray["metadata"]["labels"] = LABELS if queue else {}
    if released:
        ray["status"]["conditions"] = [kueue.condition("RayClusterSuspended", "False", "RayClusterSuspended")]
    known = {"rc-1": kueue.workload(kueue.admitted())} if workload else {}
    seen: dict[str, Any] = {"ray_clusters": {"quickstart-a1": ray}, "workloads": known, "progress": None}
    decided = decide(JOB, hrl.running_world(JOB, kueue=answer, **seen))
    assert condition(decided, "TrainerReady")[1] != "Queued"
    return message(decided, "TrainerReady")


def test_a_cluster_without_kueue_is_said_at_once() -> None:
    assert "Queue h200 has no effect: this cluster serves no Workload of Kueue" in said("absent", age=1)


def test_a_kueue_that_leaves_ray_clusters_alone_is_said_after_a_minute() -> None:
    assert "has no effect" not in said("served", age=60)
    late = said("served", age=61)
    assert "Queue h200 has no effect: Kueue has made no Workload for RayCluster quickstart-a1" in late
    assert "ray.io/raycluster" in late


@pytest.mark.parametrize(
    "seen",
    [
        {"answer": "unreadable"},
        {"answer": None},
        {"answer": "served", "workload": True},
        {"answer": "served", "released": True},
        {"answer": "served", "queue": False},
    ],
    ids=str,
)
def test_where_nobody_can_tell_or_kueue_did_its_work_nothing_is_said(seen: dict[str, Any]) -> None:
    assert "has no effect" not in said(age=600, **seen)
