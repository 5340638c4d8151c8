"""`engine: miles` through operator, supervisor and agent server, in an image that holds nothing of ours.

The image is the stand-in (images/miles_shaped): Miles' argv, files, save trigger and exit codes, without GPUs and
without learning. What this cannot show is listed in its README.
"""

import json
from collections.abc import Iterator

import pytest

from support.kube import PODS, Manifest, condition, name_of
from support.miles_job import IMAGE, ROLLOUTS, miles_job
from support.workspace import Workspace, json_lines, trained

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

NAME = "shaped"
SECONDS = 300
"""Longest wait for one thing; a rollout takes a few seconds of trials and the stand-in's step."""


@pytest.fixture(scope="module", autouse=True)
def _run(workspace: Workspace) -> Iterator[None]:
    workspace.apply(miles_job(NAME))
    yield
    workspace.delete(NAME)
    workspace.until_held(lambda held: not held, NAME, timeout=60)


def head_pod(workspace: Workspace) -> Manifest:
    selector = f"harborrl.dev/job={NAME},ray.io/node-type=head"
    return workspace.kube.until(bool, PODS, workspace.namespace, selector=selector, timeout=SECONDS)[0]


def until_trained(workspace: Workspace, count: int) -> Manifest:
    return workspace.until_job(NAME, lambda job: trained(job) >= count, timeout=SECONDS)


def test_the_driver_runs_in_the_users_image_and_the_supervisor_in_ours(workspace: Workspace) -> None:
    job = until_trained(workspace, 1)
    head = head_pod(workspace)
    images = {each["name"]: each["image"] for each in (*head["spec"]["initContainers"], *head["spec"]["containers"])}
    assert images["ray-head"] == IMAGE
    assert images["supervisor"] == images["code"] != IMAGE
    ours = "import importlib.util as u; print(u.find_spec('harborrl_trainer') is None)"
    alone = workspace.kubectl.ok("exec", name_of(head), "--container=ray-head", "--", "python3", "-c", ours)
    assert alone.strip() == "True", "the image itself must not hold our package"
    assert job["status"]["trainer"]["submissionId"] == f"{NAME}-a1-i1"


def test_a_suspend_saves_by_the_save_trigger_and_goes_on_after_it(workspace: Workspace) -> None:
    until_trained(workspace, 2)
    workspace.kubectl.ok("patch", "hrl", NAME, "--type=merge", "--patch", '{"spec": {"suspend": true}}')
    job = workspace.until_job(NAME, lambda job: job["status"]["phase"] == "Suspended", timeout=SECONDS)
    status = job["status"]
    assert status["checkpoint"]["rolloutId"] + 1 == status["rollout"]["trained"], "all that was trained is saved"
    workspace.kubectl.ok("patch", "hrl", NAME, "--type=merge", "--patch", '{"spec": {"suspend": false}}')
    until_trained(workspace, status["rollout"]["trained"] + 1)


def test_a_lost_head_pod_is_another_attempt_that_goes_on_from_miles_own_checkpoint(workspace: Workspace) -> None:
    before = until_trained(workspace, 4)["status"]
    # Without its grace, in which the stand-in may train what is left.
    workspace.kubectl.ok("delete", "pod", name_of(head_pod(workspace)), "--wait=false", "--grace-period=1")
    workspace.until_job(NAME, lambda job: job["status"]["attempt"] == before["attempt"] + 1, timeout=SECONDS)
    done = workspace.until_job(NAME, lambda job: condition(job, "Finished")["status"] == "True", timeout=2 * SECONDS)
    status = done["status"]
    assert condition(done, "Succeeded")["status"] == "True", condition(done, "Failed")["message"]
    assert status["rollout"]["trained"] == ROLLOUTS
    assert status["checkpoint"]["rolloutId"] == ROLLOUTS - 1
    claims = json.loads(workspace.read(f"cat checkpoints/{status['runPath']}/index.json"))["claims"]
    assert [claim["resumedFrom"] is None for claim in claims] == [True] + [False] * (len(claims) - 1)
    assert claims[-1]["firstRollout"] > before["checkpoint"]["rolloutId"]


def test_rewards_come_from_the_agent_server_and_every_trial_has_its_line(workspace: Workspace) -> None:
    status = workspace.job(NAME)["status"]
    logs = workspace.files(f"trials/{status['runPath']}", "*/trials/*.jsonl")
    records = [record for log in logs.values() for record in json_lines(log)]
    kept = [record for record in records if record["kept"]]
    assert len(kept) >= ROLLOUTS * 8
    assert all(0 <= record["reward"] <= 1 for record in kept)
    assert status["rollout"]["rewardMean"] is not None


def test_the_newest_checkpoints_are_kept_and_marked(workspace: Workspace) -> None:
    status = workspace.job(NAME)["status"]
    marks = workspace.read(f"cd checkpoints/{status['runPath']} && ls -d a*/i*/checkpoints/iter_*/complete.json")
    assert 1 <= len(marks.split()) <= 3
    assert f"iter_{ROLLOUTS - 1:07d}" in marks
