"""Never two drivers that write one run's folders: the volume shows it, with the operator killed at the worst moment.

The tests share the run and follow each other.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from support.kube import RAY_CLUSTERS, Kube, Manifest, condition, name_of
from support.kubectl import Kubectl, operator_running
from support.leading import Leader, end_of, leader, moment, successor
from support.node import signal
from support.workspace import Workspace, example, trained

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

NAME = "alone"
SECONDS = 300
"""Longest wait for one thing; a rollout takes 15 s on an idle machine of two cores."""


@pytest.fixture(scope="module", autouse=True)
def _run(kubectl: Kubectl, workspace: Workspace) -> Iterator[None]:
    changes = {"trainer.config.numRollout": 1000, "retries": {"maxAttempts": 5}}
    workspace.apply(example("job.yaml", changes, name=NAME))
    yield
    workspace.delete(NAME)
    operator_running(kubectl)
    workspace.until_held(lambda held: not held, NAME, timeout=60)


def until_trained(workspace: Workspace, attempt: int, beyond: int) -> Manifest:
    """The job once this attempt trains and more rollouts than `beyond` are trained."""
    return workspace.until_job(
        NAME,
        lambda job: (
            (job["status"]["phase"], job["status"]["attempt"]) == ("Running", attempt) and trained(job) > beyond
        ),
        timeout=2 * SECONDS,
    )


def run_path(job: Manifest) -> str:
    path: str = job["status"]["runPath"]
    return path


def written(workspace: Workspace, job: Manifest, incarnation: str) -> list[float]:
    """When the files of an incarnation's checkpoints and traces were last written, in seconds since 1970, sorted."""
    folders = " ".join(f"{volume}/{run_path(job)}/{incarnation}" for volume in ("checkpoints", "traces"))
    script = f"find {folders} -ignore_readdir_race -type f -printf '%T@\\n' | sort -n"
    return [float(line) for line in workspace.read(script).splitlines()]


def incarnations(workspace: Workspace, job: Manifest) -> list[str]:
    """Those that have written anything."""
    script = f"cd checkpoints/{run_path(job)} && find . -mindepth 2 -maxdepth 2 -type d -path './a*/i*' -printf '%P\\n'"
    return sorted(workspace.read(script).split())


def claims_of(workspace: Workspace, job: Manifest) -> list[dict[str, Any]]:
    index = json.loads(workspace.read(f"cat checkpoints/{run_path(job)}/index.json"))
    found: list[dict[str, Any]] = index["claims"]
    return found


@pytest.fixture(scope="module")
def before(kubectl: Kubectl, workspace: Workspace) -> Manifest:
    """The job as it trains its second rollout under a leader with a spare."""
    job = until_trained(workspace, 1, 0)
    operator_running(kubectl)
    return job


@pytest.fixture(scope="module")
def killed(before: Manifest, kube: Kube, workspace: Workspace) -> Leader:
    """The leader that has seen the head end, and was killed before it made the next attempt's cluster."""
    assert before["status"]["phase"] == "Running"
    old = leader(kube)
    (head,) = workspace.trainer_pods(NAME, "head", timeout=60)
    workspace.kubectl.ok("delete", "pod", name_of(head), "--wait=false")
    workspace.until_job(NAME, lambda job: job["status"]["attempt"] == 2, timeout=SECONDS)
    signal(workspace, old.container, "KILL")
    successor(kube, old, timeout=60)
    return old


@pytest.fixture(scope="module")
def after(before: Manifest, killed: Leader, workspace: Workspace) -> Manifest:
    """The job once the next attempt has trained."""
    assert killed.pod
    return until_trained(workspace, 2, trained(before))


def test_the_operator_died_before_it_made_the_next_attempts_cluster(
    after: Manifest, killed: Leader, kube: Kube, workspace: Workspace
) -> None:
    died = end_of(kube, killed, timeout=60)
    (cluster,) = workspace.kube.objects(RAY_CLUSTERS, workspace.namespace, f"harborrl.dev/job={NAME}")
    assert name_of(cluster) == after["status"]["trainer"]["rayCluster"] == f"{NAME}-a2"
    made = moment(cluster["metadata"]["creationTimestamp"])
    assert moment(died["finishedAt"]) <= made, "the kill came too late to be one between two attempts"


def test_each_claim_goes_on_where_the_one_before_was_saved(after: Manifest, workspace: Workspace) -> None:
    first, second = claims_of(workspace, after)
    assert (first["attempt"], first["incarnation"], first["firstRollout"]) == (1, 1, 0)
    assert (second["attempt"], second["incarnation"]) == (2, 1)
    saved = f"a1/i1/checkpoints/iter_{second['firstRollout'] - 1:07d}"
    assert second["resumedFrom"] == f"{run_path(after)}/{saved}"
    assert condition(after, "Resumed")["reason"] == "ResumedFromCheckpoint"


def test_the_first_driver_had_written_its_last_before_the_second_wrote_its_first(
    after: Manifest, workspace: Workspace
) -> None:
    first, second = written(workspace, after, "a1"), written(workspace, after, "a2")
    assert first[-1] < second[0], (datetime.fromtimestamp(first[-1], UTC), datetime.fromtimestamp(second[0], UTC))


def test_nothing_is_written_into_the_first_ones_folders_while_the_second_trains(
    after: Manifest, workspace: Workspace
) -> None:
    last = written(workspace, after, "a1")[-1]
    later = until_trained(workspace, 2, trained(after))
    assert written(workspace, later, "a1")[-1] <= last
    assert incarnations(workspace, later) == ["a1/i1", "a2/i1"]
    assert len(claims_of(workspace, later)) == 2
