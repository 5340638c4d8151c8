"""A job deleted in the middle of its trials leaves its files and nothing else, whether or not the operator looks."""

import json
from collections.abc import Iterator

import pytest

from support.kube import PODS, Manifest, status_of
from support.kubectl import Kubectl, operator_scaled_to_zero
from support.node import signal
from support.workspace import Workspace, example

pytestmark = pytest.mark.cluster

NAME = "short"
GONE_SECONDS = 60
HANGING_SECONDS = 90
"""An agent server that hangs gets 45 s from process 1 of its container before that kills it."""
START_SECONDS = 300
JOB = example("job.yaml", {"trainer.config.noSaveOptim": True}, name=NAME)


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_behind(workspace: Workspace) -> Iterator[None]:
    yield
    workspace.delete(NAME)
    workspace.until_held(lambda held: not held, NAME, timeout=GONE_SECONDS)


def running(workspace: Workspace) -> Manifest:
    """The job once trials of it run; a run that is already there is taken as it is."""
    workspace.apply(JOB)
    workspace.until_sandboxes_run(NAME, timeout=START_SECONDS)
    return workspace.until_job(NAME, lambda job: bool(status_of(job).get("runPath")), timeout=10)


def files_of(workspace: Workspace, job: Manifest) -> set[str]:
    """Every file of a run on the volume."""
    return set(workspace.read(f"find */{job['status']['runPath']} -type f").splitlines())


def deleted(workspace: Workspace) -> None:
    """Fails when anything of the job is held a minute after the deletion was asked for."""
    workspace.delete(NAME)
    workspace.until_held(lambda held: not held, NAME, timeout=GONE_SECONDS)


def is_from_the_beginning(workspace: Workspace, job: Manifest) -> bool:
    index = json.loads(workspace.read(f"cat checkpoints/{job['status']['runPath']}/index.json"))
    first = index["claims"][0]
    return (first["firstRollout"], first["resumedFrom"]) == (0, None)


def test_a_job_deleted_after_its_first_checkpoint_is_a_new_run_when_applied_again(workspace: Workspace) -> None:
    running(workspace)
    saved = workspace.until_job(NAME, lambda job: "checkpoint" in status_of(job), timeout=START_SECONDS)
    workspace.until_sandboxes_run(NAME, timeout=START_SECONDS)
    before = files_of(workspace, saved)
    deleted(workspace)
    assert before <= files_of(workspace, saved)
    assert [path for path in before if path.endswith("complete.json")]
    again = running(workspace)
    assert again["status"]["runPath"] != saved["status"]["runPath"]
    assert is_from_the_beginning(workspace, again)


def test_a_job_deleted_without_an_operator_leaves_its_files_alone_as_well(
    kubectl: Kubectl, workspace: Workspace
) -> None:
    job = running(workspace)
    before = files_of(workspace, job)
    with operator_scaled_to_zero(kubectl):
        deleted(workspace)
        assert before <= files_of(workspace, job)
        workspace.apply(JOB)
    again = workspace.until_job(NAME, lambda job: bool(status_of(job).get("runPath")), timeout=60)
    assert again["status"]["runPath"] != job["status"]["runPath"]


def test_a_job_whose_agent_server_hangs_is_gone_soon_after_its_process_1_has_lost_patience(
    workspace: Workspace,
) -> None:
    """Its grace period is as long as its longest trial, and a kubelet does not shorten one that runs."""
    running(workspace)
    selector = f"harborrl.dev/job={NAME},harborrl.dev/role=agent-server"
    (pod,) = workspace.kube.objects(PODS, workspace.namespace, selector)
    (container,) = pod["status"]["containerStatuses"]
    signal(workspace, container["containerID"].rpartition("/")[2], "STOP", but_first=True)
    workspace.delete(NAME)
    workspace.until_held(lambda held: not held, NAME, timeout=HANGING_SECONDS)
