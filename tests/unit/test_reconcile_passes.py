"""Whole passes over a cluster in memory: what cannot be read and what is refused ends in a condition."""

import copy
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, override

import pytest

from harborrl_operator.errors import ClusterError
from harborrl_operator.metrics import REGISTRY
from harborrl_operator.reconcile import RETRY_SECONDS, Reconciler
from harborrl_operator.runtime import Runtime
from support import hrl
from support.memory_cluster import MemoryCluster

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Refusing(MemoryCluster):
    """Its API server refuses Deployments with a megabyte of words."""

    @override
    async def apply(self, thing: Mapping[str, Any], *, subresource: str = "") -> dict[str, Any]:
        if thing["kind"] == "Deployment":
            raise ClusterError("apply Deployment quickstart-agent", 403, "exceeded quota " + "x" * 1_000_000)
        return await super().apply(thing, subresource=subresource)


async def a_pass(cluster: MemoryCluster) -> float | None:
    return await Reconciler(cluster, hrl.SETTINGS, lambda: NOW).reconcile("research", "quickstart")


async def test_a_refused_child_is_said_shortly_and_tried_again() -> None:
    cluster = Refusing()
    assert await a_pass(cluster) == RETRY_SECONDS
    said = cluster.condition("AgentServerReady")
    assert (said["status"], said["reason"]) == ("False", "ApplyFailed")
    assert said["message"].startswith("The API server refused to apply Deployment quickstart-agent: exceeded quota")
    assert len(said["message"]) <= 1024


async def test_a_spec_of_another_version_is_named_field_by_field_and_shortly() -> None:
    cluster = MemoryCluster(hrl.merged(hrl.QUICKSTART_SPEC, {f"trainer.field{n}": n for n in range(500)}))
    assert await a_pass(cluster) is None
    said = cluster.condition("Admitted")
    assert (said["status"], said["reason"]) == ("False", "InvalidSpec")
    assert "spec.trainer.field0: Extra inputs are not permitted" in said["message"]
    assert len(said["message"]) <= 1024
    assert len(cluster.job["status"]["message"]) <= 256


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("NetworkPolicy", "quickstart-deny"),
        ("PodDisruptionBudget", "quickstart-trainer"),
        ("Role", "harborrl-supervisor-quickstart"),
        ("RoleBinding", "harborrl-supervisor-quickstart"),
        ("Deployment", f"quickstart-agent-{hrl.agent_version(hrl.job())}"),
    ],
)
async def test_an_object_of_the_platform_is_not_taken_over_whatever_its_kind(kind: str, name: str) -> None:
    cluster = MemoryCluster()
    cluster.put(kind, "research", name, {"metadata": {"labels": {"team": "platform"}}, "spec": {"mine": True}})
    before = copy.deepcopy(cluster.objects[kind, "research", name])
    await a_pass(cluster)
    assert cluster.objects[kind, "research", name] == before
    assert cluster.condition("Admitted")["reason"] == "NameTaken"
    assert f"{kind} {name}" in cluster.condition("Admitted")["message"]


async def test_what_is_known_to_be_the_jobs_is_not_looked_at_again() -> None:
    class Counting(MemoryCluster):
        looks = 0

        @override
        async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
            self.looks += kind == "NetworkPolicy"
            return await super().get(kind, namespace, name)

    cluster = Counting()
    reconciler = Reconciler(cluster, hrl.SETTINGS, lambda: NOW)
    await reconciler.reconcile("research", "quickstart")
    once = cluster.looks
    await reconciler.reconcile("research", "quickstart")
    assert (once > 0, cluster.looks) == (True, once)


class Vanishing(MemoryCluster):
    """Its job is deleted between the read and the write of the status."""

    @override
    async def apply(self, thing: Mapping[str, Any], *, subresource: str = "") -> dict[str, Any]:
        if subresource == "status":
            raise ClusterError("apply HarborRLJob quickstart", 404, 'harborrljobs.harborrl.dev "quickstart" not found')
        return await super().apply(thing, subresource=subresource)


@pytest.mark.parametrize("spec", [hrl.QUICKSTART_SPEC, hrl.merged(hrl.QUICKSTART_SPEC, {"trainer.novel": 1})])
async def test_a_job_that_is_deleted_during_a_pass_is_gone_and_no_error(
    spec: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    before = REGISTRY.get_sample_value("harborrl_reconciles_total", {"result": "error"})
    runtime = Runtime(Vanishing(spec), hrl.SETTINGS)
    with caplog.at_level(logging.INFO):
        assert await runtime.queue.once(("research", "quickstart")) is None
    assert [(line.levelname, line.message) for line in caplog.records] == [
        ("INFO", "research/quickstart was deleted during a pass")
    ]
    assert REGISTRY.get_sample_value("harborrl_reconciles_total", {"result": "error"}) == before


class TestInANamespaceThatIsBeingDeleted:
    def cluster(self) -> MemoryCluster:
        cluster = MemoryCluster()
        cluster.put("Namespace", None, "research", {"metadata": {}, "status": {"phase": "Active"}})
        return cluster

    def end_namespace(self, cluster: MemoryCluster) -> None:
        cluster.put("Namespace", None, "research", {"metadata": {"deletionTimestamp": hrl.ago(1)}})

    async def test_a_job_goes_first_and_is_charged_nothing(self) -> None:
        cluster = self.cluster()
        await a_pass(cluster)
        made, job = set(cluster.objects), cluster.job
        status = copy.deepcopy(job["status"])
        cluster.objects = {key: thing for key, thing in cluster.objects.items() if key[0] != "Deployment"}
        self.end_namespace(cluster)
        await a_pass(cluster)
        assert [key for key in cluster.objects if key[0] == "HarborRLJob"] == []
        assert set(cluster.objects) < made
        assert job["status"] == status

    async def test_a_new_job_makes_nothing(self) -> None:
        cluster = self.cluster()
        self.end_namespace(cluster)
        before = set(cluster.objects)
        await a_pass(cluster)
        assert before - set(cluster.objects) == {("HarborRLJob", "research", "quickstart")}
        assert set(cluster.objects) < before
