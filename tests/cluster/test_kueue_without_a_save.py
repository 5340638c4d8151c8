"""A trainer that Kueue preempts while it cannot save: what is lost is said, and it begins anew where nothing was kept.

The tests share the run and follow each other. The queue has room for one trainer.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.kube import Manifest, condition, status_of
from support.kubectl import Kubectl
from support.node import signal
from support.queues import Queues, queues_in
from support.workspace import Workspace, trained

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.kueue]

NAME, URGENT = "unsaved", "pushy"
SECONDS = 600
GRACE_SECONDS = 30


@pytest.fixture(scope="module")
def queues(kubectl: Kubectl, workspace: Workspace) -> Iterator[Queues]:
    with queues_in(workspace, kubectl, NAME, URGENT) as queues:
        yield queues


def freeze_driver(workspace: Workspace) -> None:
    """Stop every process of Ray on the head, the driver too: it hears no SIGTERM and saves nothing."""
    (head,) = workspace.trainer_pods(NAME, "head", timeout=60)
    ray = next(one for one in head["status"]["containerStatuses"] if one["name"] == "ray-head")
    signal(workspace, ray["containerID"].rpartition("/")[2], "STOP")


@pytest.fixture(scope="module")
def preempted(queues: Queues, workspace: Workspace) -> Manifest:
    """The job once it waits again, after its frozen driver was ended with its pod."""
    # Saved by request alone: what is trained is kept by no checkpoint.
    changes = {"trainer.config.saveInterval": 1000, "checkpoint": {"graceSeconds": GRACE_SECONDS}}
    workspace.apply(queues.job(NAME, "low", {"trainer.config.numRollout": 1000, **changes}))
    workspace.until_job(NAME, lambda job: trained(job) >= 1, timeout=SECONDS)
    # The other one waits in the queue first: between freezing and preemption there is no time for a liveness probe.
    queues.hold("trainers", hold=True)
    try:
        workspace.apply(queues.job(URGENT, "high", {"trainer.config.numRollout": 1}))
        workspace.until_job(URGENT, lambda job: status_of(job).get("phase") == "Queued", timeout=SECONDS)
        freeze_driver(workspace)
    finally:
        queues.hold("trainers", hold=False)
    return workspace.until_job(NAME, lambda job: has_missed(job) and not is_ending(job), timeout=SECONDS)


def has_missed(job: Manifest) -> bool:
    return bool(condition(job, "Progressing")["reason"] == "CheckpointMissed")


def is_ending(job: Manifest) -> bool:
    return "save and end" in condition(job, "TrainerReady")["message"]


def test_a_preemption_that_could_not_save_is_a_missed_checkpoint_with_its_loss(preempted: Manifest) -> None:
    assert preempted["status"]["phase"] == "Queued"
    assert "checkpoint" not in preempted["status"]
    (attempt,) = preempted["status"]["attempts"]
    assert attempt["lostRollouts"] >= 1
    said = condition(preempted, "Progressing")["message"]
    assert f"{attempt['lostRollouts']} trained rollouts are lost, it goes on at rollout 0." in said
    assert f"({GRACE_SECONDS})" in said
    assert condition(preempted, "TrainerReady")["reason"] == "Evicted"


def test_a_preemption_spends_no_retry(preempted: Manifest) -> None:
    assert preempted["status"]["attempt"] == 1
    assert "failures" not in preempted["status"] or not any(preempted["status"]["failures"].values())


def test_a_run_that_kept_nothing_begins_anew_as_the_next_incarnation(preempted: Manifest, workspace: Workspace) -> None:
    workspace.until_job(URGENT, lambda job: status_of(job)["phase"] == "Succeeded", timeout=SECONDS)
    again = workspace.until_job(
        NAME,
        lambda job: (
            (status_of(job)["phase"], status_of(job).get("incarnation")) == ("Running", 2) and trained(job) >= 1
        ),
        timeout=SECONDS,
    )
    claims = claims_of(workspace, again)
    assert [(claim["attempt"], claim["incarnation"]) for claim in claims] == [(1, 1), (1, 2)]
    assert [(claim["firstRollout"], claim["resumedFrom"]) for claim in claims] == [(0, None), (0, None)]
    assert again["status"]["attempts"][0]["lostRollouts"] >= preempted["status"]["attempts"][0]["lostRollouts"]


def is_running_again(job: Manifest) -> bool:
    return (status_of(job)["phase"], status_of(job).get("incarnation")) == ("Running", 2)


def claims_of(workspace: Workspace, job: Manifest) -> list[dict[str, Any]]:
    index = json.loads(workspace.read(f"cat checkpoints/{job['status']['runPath']}/index.json"))
    found: list[dict[str, Any]] = index["claims"]
    return found
