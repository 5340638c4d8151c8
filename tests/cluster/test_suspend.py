"""One run that is suspended while it trains and resumed: nothing is held meanwhile, nothing that was trained is lost.

The tests share the run and follow each other.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from support.kube import PODS, Manifest, condition
from support.workspace import Workspace, example, json_lines, trained

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

NAME = "paused"
ROLLOUTS = 6
SECONDS = 300
"""Longest wait for one thing; a rollout takes 15 s on an idle machine of two cores."""


@pytest.fixture(scope="module", autouse=True)
def _run(workspace: Workspace) -> Iterator[None]:
    # Saved by request alone: what a suspend keeps, it has asked for.
    changes = {"trainer.config.numRollout": ROLLOUTS, "trainer.config.saveInterval": 1000}
    workspace.apply(example("job.yaml", changes, name=NAME))
    yield
    workspace.delete(NAME)
    workspace.until_held(lambda held: not held, NAME, timeout=60)


def set_suspend(workspace: Workspace, value: bool) -> None:
    workspace.kubectl.ok("patch", "hrl", NAME, "--type=merge", "-p", json.dumps({"spec": {"suspend": value}}))


def is_suspended(job: Manifest) -> bool:
    return bool(condition(job, "Suspended")["status"] == "True")


@pytest.fixture(scope="module")
def suspended(workspace: Workspace) -> Manifest:
    """The job once it is Suspended, after at least one rollout was trained and while another one's trials ran."""
    workspace.until_job(NAME, lambda job: trained(job) >= 1, timeout=2 * SECONDS)
    workspace.until_sandboxes_run(NAME, timeout=SECONDS)
    set_suspend(workspace, True)
    asked = workspace.until_job(NAME, lambda job: job["status"]["phase"] in ("Suspending", "Suspended"), timeout=60)
    assert condition(asked, "Suspended")["reason"] in ("Suspending", "Suspended")
    return workspace.until_job(NAME, is_suspended, timeout=SECONDS)


def test_a_suspend_leaves_a_checkpoint_that_is_newer_than_the_request_and_loses_nothing(suspended: Manifest) -> None:
    status = suspended["status"]
    assert condition(suspended, "Suspended")["reason"] == "Suspended", condition(suspended, "Suspended")["message"]
    saved_at, asked_at = status["checkpoint"]["savedAt"], status["suspension"]["requestedAt"]
    assert datetime.fromisoformat(saved_at) >= datetime.fromisoformat(asked_at)
    assert status["checkpoint"]["rolloutId"] + 1 == status["rollout"]["trained"] >= 1
    assert status["suspension"]["lostRollouts"] == 0
    assert "activeSince" not in status


def test_a_suspended_job_holds_no_pod_and_no_sandbox(suspended: Manifest, workspace: Workspace) -> None:
    assert is_suspended(suspended)

    def released(held: list[str]) -> bool:
        return not [thing for thing in held if thing.startswith(("Pod ", "RayCluster ", "Deployment ", "ReplicaSet "))]

    held = workspace.until_held(released, NAME, timeout=60)
    assert f"ConfigMap {NAME}-request" not in held


def test_a_suspended_job_is_not_shown_as_stalled_or_running(suspended: Manifest, workspace: Workspace) -> None:
    assert condition(suspended, "Stalled")["status"] == "False"
    header, line = workspace.kubectl.ok("get", "hrl", NAME).splitlines()
    shown = dict(zip(header.split(), line.split(), strict=True))
    assert (shown["PHASE"], shown["REASON"]) == ("Suspended", "Suspended")


@pytest.fixture(scope="module")
def done(suspended: Manifest, workspace: Workspace) -> Manifest:
    assert is_suspended(suspended)
    set_suspend(workspace, False)
    running = workspace.until_job(NAME, lambda job: job["status"]["phase"] == "Running", timeout=2 * SECONDS)
    assert "uspend" not in running["status"]["message"] + running["status"]["reason"]
    finished = workspace.until_job(
        NAME, lambda job: condition(job, "Finished")["status"] == "True", timeout=3 * SECONDS
    )
    assert condition(finished, "Succeeded")["status"] == "True", condition(finished, "Failed")["message"]
    return finished


def claims_of(job: Manifest, workspace: Workspace) -> list[dict[str, Any]]:
    index = workspace.read(f"cat checkpoints/{job['status']['runPath']}/index.json")
    claims: list[dict[str, Any]] = json.loads(index)["claims"]
    return claims


def test_a_resume_goes_on_where_the_suspend_stopped_in_the_same_attempt(
    suspended: Manifest, done: Manifest, workspace: Workspace
) -> None:
    stopped = suspended["status"]["rollout"]["trained"]
    first, second = claims_of(done, workspace)
    assert (first["attempt"], first["incarnation"], second["attempt"], second["incarnation"]) == (1, 1, 1, 2)
    assert second["firstRollout"] == stopped
    assert second["resumedFrom"] == suspended["status"]["checkpoint"]["path"]
    assert condition(done, "Resumed")["reason"] == "ResumedFromCheckpoint"
    assert f"goes on at rollout {stopped}." in condition(done, "Resumed")["message"]


def test_every_rollout_was_trained_exactly_once(done: Manifest, workspace: Workspace) -> None:
    traces = workspace.files(f"traces/{done['status']['runPath']}", "*/metrics.jsonl")
    steps = [line["rollout_id"] for log in traces.values() for line in json_lines(log) if line["kind"] == "step"]
    assert sorted(steps) == list(range(ROLLOUTS))


def test_the_history_has_one_attempt_of_two_incarnations_that_lost_nothing(done: Manifest) -> None:
    (attempt,) = done["status"]["attempts"]
    assert (attempt["outcome"], attempt["incarnations"], attempt["lostRollouts"]) == ("Succeeded", 2, 0)


def test_no_trainer_pod_is_left(done: Manifest, workspace: Workspace) -> None:
    assert done["status"]["finishedAt"]
    selector = f"harborrl.dev/job={NAME},harborrl.dev/role=trainer"
    workspace.kube.until(lambda pods: not pods, PODS, workspace.namespace, selector=selector, timeout=120)
