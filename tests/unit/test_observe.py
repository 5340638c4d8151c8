"""What belongs to the job, to a deleted job of its name, and to nobody."""

import json
from typing import Any, override

import pytest

from harborrl_operator.cluster import Cluster
from harborrl_operator.errors import ClusterError
from harborrl_operator.observe import MOST_WARNINGS, observe
from support import hrl
from support.selectors import selects


class Store(Cluster):
    """A cluster that holds `things` by kind."""

    def __init__(self, things: list[tuple[str, dict[str, Any]]]) -> None:
        self.things = things
        self.lists: list[str] = []

    @override
    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        return next((t for k, t in self.things if (k, t["metadata"]["name"]) == (kind, name)), None)

    @override
    async def find(
        self,
        kind: str,
        namespace: str | None,
        selector: str = "",
        fields: str = "",
    ) -> list[dict[str, Any]]:
        self.lists.append(kind)
        return [t for k, t in self.things if k == kind and selects(selector, t)]


def thing(name: str, uid: str | None, role: str = "") -> dict[str, Any]:
    labels = {"harborrl.dev/job": "quickstart", "harborrl.dev/job-uid": uid, "harborrl.dev/role": role} if uid else {}
    meta = {
        "name": name,
        "namespace": "research",
        "uid": f"u-{name}",
        "creationTimestamp": hrl.ago(1),
        "labels": labels,
    }
    return {"metadata": meta, "data": {"progress": hrl.progress("SUCCEEDED")}, "status": {"phase": "Running"}}


async def look(*things: tuple[str, dict[str, Any]]) -> Any:
    return await observe(Store(list(things)), hrl.job(), hrl.SETTINGS, hrl.NOW)


async def test_a_deleted_jobs_report_pods_and_cluster_are_its_own_and_not_ours() -> None:
    seen = await look(
        ("ConfigMap", thing("quickstart-progress", "old")),
        ("RayCluster", thing("quickstart-a1", "old")),
        ("Pod", thing("quickstart-a1-head", "old", "trainer")),
        ("Pod", thing("sb-1", "old", "sandbox")),
    )
    assert seen.progress is None
    assert not seen.ray_clusters
    assert not seen.trainer_pods
    assert {(kind, left["metadata"]["name"]) for kind, left in seen.predecessors} == {
        ("ConfigMap", "quickstart-progress"),
        ("RayCluster", "quickstart-a1"),
        ("Pod", "quickstart-a1-head"),
    }


async def test_an_object_without_our_labels_is_a_strangers() -> None:
    seen = await look(("ConfigMap", thing("quickstart-config", None)), ("Service", thing("quickstart-agent", hrl.UID)))
    assert seen.strangers == ("ConfigMap quickstart-config",)


async def test_what_carries_our_uid_is_ours() -> None:
    seen = await look(("ConfigMap", thing("quickstart-progress", hrl.UID)), ("Pod", thing("head", hrl.UID, "trainer")))
    assert json.loads(seen.progress)["driver"]["state"] == "SUCCEEDED"
    assert len(seen.trainer_pods) == 1
    assert (seen.predecessors, seen.strangers) == ((), ())


class Closed(Store):
    """A cluster of which the operator may read no Namespace."""

    @override
    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        if kind == "Namespace":
            raise ClusterError(f"get Namespace {name}", 403, "forbidden")
        return await super().get(kind, namespace, name)


@pytest.mark.parametrize(("store", "hidden"), [(Closed([]), True), (Store([]), False)])
async def test_a_namespace_that_may_not_be_read_is_told_from_one_that_is_not_there(store: Store, hidden: bool) -> None:
    seen = await observe(store, hrl.job(), hrl.SETTINGS, hrl.NOW)
    assert (seen.sandbox_namespace, seen.sandbox_namespace_is_hidden) == (None, hidden)


async def test_a_thousand_stuck_pods_cost_a_few_lists_of_events() -> None:
    stuck = []
    for index in range(50):
        pod = thing(f"p{index}", hrl.UID, "trainer")
        pod["metadata"]["creationTimestamp"] = hrl.ago(120)
        pod["status"] = {"phase": "Pending"}
        stuck.append(("Pod", pod))
    store = Store(stuck)
    await observe(store, hrl.job(), hrl.SETTINGS, hrl.NOW)
    assert store.lists.count("Event") == MOST_WARNINGS
