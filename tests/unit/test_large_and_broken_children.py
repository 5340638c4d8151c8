"""What children report may be huge or nonsense: status stays small, and a fault of ours is said in it."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from harborrl_operator.reconcile import Reconciler
from support import hrl
from support.memory_cluster import MemoryCluster

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MEGABYTE = "Traceback (most recent call last):\n" + "  File x, line 1, in y\n" * 45_000
SMALL = 16 * 1024
"""Bytes of a whole status."""


async def a_pass(cluster: MemoryCluster) -> None:
    await Reconciler(cluster, hrl.SETTINGS, lambda: NOW).reconcile("research", "quickstart")


def end_preflight(cluster: MemoryCluster, exit_code: int, message: str) -> None:
    ended = {"exitCode": exit_code, "message": message, "startedAt": hrl.ago(30), "finishedAt": hrl.ago(5)}
    state = {"terminated": ended}
    named = cluster.objects["Pod", "research", "quickstart-preflight"]["spec"]["containers"]
    containers = [{"name": one["name"], "image": "i", "state": state} for one in named]
    status = {"phase": "Failed" if exit_code else "Succeeded", "containerStatuses": containers}
    cluster.put("Pod", "research", "quickstart-preflight", {"status": status})


async def with_agent_server(spec: dict[str, Any] | None = None) -> MemoryCluster:
    """The preflight runs."""
    cluster = MemoryCluster(spec)
    await a_pass(cluster)
    cluster.make_server_ready()
    await a_pass(cluster)
    assert ("Pod", "research", "quickstart-preflight") in cluster.objects
    return cluster


async def with_ray_cluster(spec: dict[str, Any] | None = None) -> MemoryCluster:
    cluster = await with_agent_server(spec)
    end_preflight(cluster, 0, hrl.PASSED)
    await a_pass(cluster)
    assert ("RayCluster", "research", "quickstart-a1") in cluster.objects
    return cluster


def size_of_status(cluster: MemoryCluster) -> int:
    return len(json.dumps(cluster.job["status"]))


async def test_a_megabyte_in_a_termination_message_leaves_status_small() -> None:
    cluster = await with_agent_server()
    end_preflight(cluster, 70, MEGABYTE + "ValueError: the last word\n")
    await a_pass(cluster)
    assert "the last word" in cluster.condition("Admitted")["message"]
    assert size_of_status(cluster) < SMALL


async def test_a_megabyte_on_one_line_leaves_status_small() -> None:
    cluster = await with_agent_server()
    end_preflight(cluster, 70, "x" * 1_000_000)
    await a_pass(cluster)
    assert size_of_status(cluster) < SMALL


async def test_a_megabyte_in_a_finding_leaves_status_small() -> None:
    cluster = await with_agent_server()
    finding = {"check": "I6", "reason": "TaskInvalid", "severity": "refuse", "message": MEGABYTE}
    end_preflight(cluster, 1, json.dumps({"schemaVersion": 1, "ok": False, "findings": [finding] * 3}))
    await a_pass(cluster)
    assert cluster.condition("Admitted")["reason"] == "TaskInvalid"
    assert size_of_status(cluster) < SMALL


@pytest.mark.parametrize(
    ("state", "changes"),
    [
        ("FAILED", {"driver.message": MEGABYTE, "driver.failureClass": "configuration"}),
        ("RUNNING", {"driver.submissionId": MEGABYTE, "checkpoint.path": MEGABYTE}),
        ("FAILED", {"driver.failureClass": MEGABYTE}),
        (MEGABYTE, {}),
    ],
    ids=["driver message", "names", "failure class", "state"],
)
async def test_a_megabyte_in_a_progress_report_leaves_status_small(state: str, changes: dict[str, Any]) -> None:
    cluster = await with_ray_cluster()
    report = {"data": {"progress": hrl.progress(state, changes)}}
    cluster.put("ConfigMap", "research", "quickstart-progress", report)
    for _ in range(3):
        await a_pass(cluster)
    assert size_of_status(cluster) < SMALL


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "F", "message": MEGABYTE}]},
        {"state": "failed", "reason": MEGABYTE},
    ],
    ids=["a condition", "a state"],
)
async def test_a_megabyte_in_a_ray_cluster_leaves_status_small(status: dict[str, Any]) -> None:
    cluster = await with_ray_cluster()
    cluster.put("RayCluster", "research", "quickstart-a1", {"status": status})
    await a_pass(cluster)
    assert cluster.condition("TrainerReady")["reason"] == "PodsRefused"
    assert size_of_status(cluster) < SMALL


async def test_two_hundred_kibibytes_of_spec_reconcile_to_the_ray_cluster() -> None:
    line = "--name 'a value that is long enough to fill some space' # and a comment\n"
    text = line * (64_000 // len(line))
    raw = {
        "trainer.engine": "miles",
        "trainer.gpusPerNode": 8,
        "trainer.recipeArgs": text,
        "trainer.extraArgs": text,
        "trainer.customConfigYaml": "save_interval: 5 # " + "x" * 64_000,
    }
    spec = hrl.merged(hrl.QUICKSTART_SPEC, raw | {"trainer.env": [{"name": "FILL", "value": "x" * 12_000}]})
    assert len(json.dumps(spec)) > 200 * 1024
    cluster = await with_ray_cluster(spec)
    assert size_of_status(cluster) < SMALL
    largest = max(len(json.dumps(thing)) for (kind, _, _), thing in cluster.objects.items() if kind != "HarborRLJob")
    assert largest < 1024 * 1024


async def test_a_fault_of_the_operator_reaches_a_condition_and_the_next_good_pass_clears_it() -> None:
    cluster = await with_ray_cluster()
    whole = cluster.objects["RayCluster", "research", "quickstart-a1"]
    cluster.objects["RayCluster", "research", "quickstart-a1"] = {**whole, "spec": None}
    for _ in range(2):
        with pytest.raises(AttributeError):
            await a_pass(cluster)
    said = cluster.condition("Progressing")
    assert (said["status"], said["reason"]) == ("Unknown", "OperatorError")
    assert "AttributeError in workloads.is_held_back" in said["message"]
    assert cluster.job["status"]["reason"] == "OperatorError"
    assert cluster.condition("Admitted")["status"] == "True"
    cluster.objects["RayCluster", "research", "quickstart-a1"] = whole
    await a_pass(cluster)
    assert "OperatorError" not in json.dumps(cluster.job["status"])
    assert cluster.condition("Progressing")["reason"] == "NotRunning"


async def test_a_fault_says_where_and_never_what_was_in_the_objects(caplog: pytest.LogCaptureFixture) -> None:
    cluster = await with_ray_cluster()
    cluster.put("Pod", "research", "head", {"metadata": {"labels": {"harborrl.dev/job": "quickstart"}}})
    labels = {"harborrl.dev/job-uid": hrl.UID, "harborrl.dev/role": "trainer", "harborrl.dev/attempt": "canary"}
    cluster.put("Pod", "research", "head", {"metadata": {"labels": labels}})
    with caplog.at_level(logging.DEBUG), pytest.raises(ValueError, match="canary"):
        await a_pass(cluster)
    assert "ValueError in observed.attempt_of" in cluster.condition("Progressing")["message"]
    assert "canary" not in json.dumps(cluster.job["status"])


async def test_a_finished_job_keeps_its_verdict_whatever_fails_afterwards() -> None:
    cluster = await with_ray_cluster()
    report = {"data": {"progress": hrl.progress("SUCCEEDED")}}
    cluster.put("ConfigMap", "research", "quickstart-progress", report)
    await a_pass(cluster)
    assert cluster.condition("Succeeded")["status"] == "True"
    before = cluster.job["status"]
    cluster.put("RayCluster", "research", "quickstart-a1", {"metadata": {"labels": {"harborrl.dev/job": "quickstart"}}})
    del cluster.objects["RayCluster", "research", "quickstart-a1"]["metadata"]["uid"]
    cluster.objects["RayCluster", "research", "quickstart-a1"]["metadata"]["labels"]["harborrl.dev/job-uid"] = hrl.UID
    with pytest.raises(KeyError):
        await a_pass(cluster)
    assert cluster.job["status"] == before
