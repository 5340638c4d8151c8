"""A job that an earlier operator started goes on under this one as if nothing had happened.

`tests/data/upgrade/<commit>` holds what the operator of that commit had written, and its CRD (tests/data/README.md says
how it was recorded). kuberay#2315 tells of an upgrade that restarted every workload.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
import yaml

from harborrl_operator.cluster import Cluster
from harborrl_operator.models import Settings
from harborrl_operator.reconcile import Reconciler
from support.record_upgrade import Walk
from support.small_server import SmallServer, Thing, Write, merged

ROOT = Path(__file__).resolve().parents[2]
BEFORE = ROOT / "tests" / "data" / "upgrade"
FIRST_LIGHT, VERSIONED = "815a83a", "bee8d39"
"""One agent server a job under its own name; a Deployment a version of it."""
AT = "2026-01-01T11:59:50Z"
NOW = datetime(2026, 1, 1, 12, 1, 0, tzinfo=UTC)
NAMESPACE, NAME = "research", "quickstart"
RUNS = ("Deployment", "Pod", "RayCluster")
"""What an upgrade must not touch."""

both = pytest.mark.parametrize("commit", [FIRST_LIGHT, VERSIONED])


def present_crd() -> Thing:
    return dict(yaml.safe_load((ROOT / "crds" / "harborrljobs.yaml").read_text()))


def left_by(commit: str) -> list[Thing]:
    return list(json.loads((BEFORE / commit / "objects.json").read_text()))


def world(commit: str, crd: Thing | None = None) -> SmallServer:
    server = SmallServer(crd or present_crd(), AT)
    for thing in left_by(commit):
        server.put(thing)
    return server


def touched(server: SmallServer, commit: str) -> list[str]:
    """What runs and was made, deleted, or sent in words other than those of the operator before."""
    before = {(thing["kind"], thing["metadata"]["name"]): thing for thing in left_by(commit)}

    def is_as_it_was(write: Write) -> bool:
        found = before.get((write.kind, write.name), {})
        return write.verb == "apply" and merged(found, write.body) == found

    return [
        f"{write.verb} {write.kind} {write.name}"
        for write in server.writes
        if write.kind in RUNS and not is_as_it_was(write)
    ]


async def world_of_now() -> SmallServer:
    """As an operator of this very commit leaves it."""
    walk = Walk(present_crd())
    await walk.walk()
    walk.server.writes.clear()
    return walk.server


async def passes(server: SmallServer) -> None:
    operator = Reconciler(cast("Cluster", server), Settings(), lambda: NOW)
    for _ in range(3):
        await operator.reconcile(NAMESPACE, NAME)


def job_of(server: SmallServer) -> Thing:
    return server.objects["HarborRLJob", NAMESPACE, NAME]


def spec_schema(crd: Thing) -> Thing:
    found: Thing = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def says(server: SmallServer, state: str, failure: str | None = None) -> None:
    """The supervisor's report, which is older than the operator that reads it."""
    key = ("ConfigMap", NAMESPACE, f"{NAME}-progress")
    report = json.loads(server.objects[key]["data"]["progress"])
    report["driver"] |= {"state": state, "failureClass": failure, "message": "a node went away" if failure else ""}
    server.objects[key]["data"]["progress"] = json.dumps(report)


@both
async def test_an_upgrade_restarts_nothing_of_a_running_job(commit: str) -> None:
    server = world(commit)
    await passes(server)
    assert touched(server, commit) == []
    status = job_of(server)["status"]
    assert (status["phase"], status["attempt"], status["step"]) == ("Running", 1, "1/3")
    assert [attempt["outcome"] for attempt in status["attempts"]] == ["Running"]
    assert [write.body["reason"] for write in server.writes if write.kind == "Event"] == []


async def test_what_would_be_made_otherwise_now_waits_for_the_next_attempt_and_is_said() -> None:
    server = world(FIRST_LIGHT)
    await passes(server)
    admitted = next(one for one in job_of(server)["status"]["conditions"] if one["type"] == "Admitted")
    assert admitted["status"] == "True"
    assert "takes effect with the next attempt or resume" in admitted["message"]


@both
async def test_a_job_of_before_ends_as_it_would_have_and_holds_nothing(commit: str) -> None:
    server = world(commit)
    await passes(server)
    says(server, "SUCCEEDED")
    await passes(server)
    assert job_of(server)["status"]["phase"] == "Succeeded"
    assert [key for key in server.objects if key[0] in ("Deployment", "RayCluster")] == []


@both
async def test_an_attempt_of_before_that_fails_is_followed_by_one_of_now(commit: str) -> None:
    server = world(commit)
    await passes(server)
    says(server, "FAILED", "infrastructure")
    await passes(server)
    status = job_of(server)["status"]
    assert status["attempts"][0]["outcome"] == "Failed"
    assert (status["phase"], status["attempt"]) == ("StartingTrainer", 2)


@both
async def test_a_field_that_the_crd_has_lost_is_no_edit(commit: str) -> None:
    server = world(commit)
    job_of(server)["spec"]["retired"] = {"knob": 1}
    job_of(server)["spec"]["trainer"]["config"]["retiredKnob"] = 1
    await passes(server)
    assert touched(server, commit) == []
    assert job_of(server)["status"]["phase"] == "Running"


async def test_a_default_that_was_not_written_when_the_job_was_made_is_no_edit() -> None:
    server = await world_of_now()
    for part in ("checkpoint", "progress", "retries", "rollout", "network"):
        del job_of(server)["spec"][part]  # stored by a CRD that did not know it
    await passes(server)
    assert [write for write in server.writes if write.kind == "RayCluster" or write.verb == "delete"] == []
    admitted = next(one for one in job_of(server)["status"]["conditions"] if one["type"] == "Admitted")
    assert admitted["message"] == "All checks and the preflight passed."


@both
async def test_under_the_crd_of_a_later_version_the_operator_of_now_leaves_alone_what_runs(commit: str) -> None:
    later = present_crd()
    spec_schema(later)["properties"]["trainer"]["properties"]["lateKnob"] = {"type": "integer", "default": 3}
    server = world(commit, later)
    await passes(server)
    assert {write.verb for write in server.writes} <= {"apply status"}
    server.crd = present_crd()  # or the operator of that version takes over
    await passes(server)
    assert touched(server, commit) == []
    assert job_of(server)["status"]["phase"] == "Running"


async def test_the_record_would_show_a_template_that_changed() -> None:
    server = await world_of_now()
    operator = Reconciler(cast("Cluster", server), Settings(agent_server_image="another:2"), lambda: NOW)
    await operator.reconcile(NAMESPACE, NAME)
    (deployment,) = [write for write in server.writes if write.kind == "Deployment"]
    assert f"apply Deployment {deployment.name}" in touched(server, VERSIONED)
