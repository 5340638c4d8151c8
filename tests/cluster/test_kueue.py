"""A trainer behind the real Kueue: admitted, preempted, resumed, hurt, given back; and the dead-lock that it may meet.

The tests share the run `patient` and follow each other. The queue has room for one trainer.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.kube import PODS, RAY_CLUSTERS, Manifest, condition, name_of, status_of
from support.kubectl import Kubectl
from support.queues import Queues, queue_label, queues_in
from support.workspace import Workspace, trained

pytestmark = [pytest.mark.cluster, pytest.mark.kueue]

NAME, URGENT, NEXT, STUCK, BAD = "patient", "urgent", "next", "stuck", "bad"
ROLLOUTS = 8
SECONDS = 600


@pytest.fixture(scope="module")
def queues(kubectl: Kubectl, workspace: Workspace) -> Iterator[Queues]:
    with queues_in(workspace, kubectl, NAME, URGENT, NEXT, STUCK, BAD) as queues:
        yield queues


def queued(queues: Queues, name: str, priority: str, changes: dict[str, Any] | None = None) -> Manifest:
    return queues.job(name, priority, {"trainer.config.numRollout": ROLLOUTS, **(changes or {})})


def reason(job: Manifest, kind: str = "TrainerReady") -> str:
    found: str = condition(job, kind)["reason"]
    return found


def is_ending(job: Manifest) -> bool:
    return "save and end" in condition(job, "TrainerReady")["message"]


def is_running(*, incarnation: int, beyond: int = 0) -> Callable[[Manifest], bool]:
    def true(job: Manifest) -> bool:
        status = status_of(job)
        ours = (status.get("phase"), status.get("incarnation")) == ("Running", incarnation)
        return ours and trained(job) > beyond

    return true


def claims(workspace: Workspace, job: Manifest) -> list[dict[str, Any]]:
    """Which incarnation of the run began at which rollout, and from which checkpoint."""
    index = json.loads(workspace.read(f"cat checkpoints/{job['status']['runPath']}/index.json"))
    found: list[dict[str, Any]] = index["claims"]
    return found


def head(workspace: Workspace, name: str) -> Manifest:
    return workspace.trainer_pods(name, "head", timeout=SECONDS)[0]


def test_a_job_that_a_check_refuses_takes_no_quota(queues: Queues, workspace: Workspace) -> None:
    workspace.apply(queued(queues, BAD, "high", {"storage.models": {"pvc": "nowhere"}}))
    workspace.until_job(BAD, lambda job: reason(job, "Admitted") == "ClaimNotFound", timeout=60)
    assert queues.workloads_of(BAD) == []


def test_a_trainer_is_admitted_by_its_queue_and_its_labels_are_on_nothing_else(
    queues: Queues, workspace: Workspace
) -> None:
    workspace.apply(queued(queues, NAME, "low"))
    workspace.until_job(NAME, is_running(incarnation=1, beyond=0), timeout=SECONDS)
    (cluster,) = workspace.kube.objects(RAY_CLUSTERS, workspace.namespace, f"harborrl.dev/job={NAME}")
    assert queue_label(cluster) == "trainers"
    pods = workspace.kube.objects(PODS, workspace.namespace, f"harborrl.dev/job={NAME}")
    assert [name_of(pod) for pod in pods if queue_label(pod) == "trainers"] == []
    (workload,) = queues.workloads_of(NAME)
    assert condition(workload, "Admitted")["status"] == "True"
    assert workload["spec"]["priorityClassRef"]["name"] == queues.name("low")


def test_a_preempted_trainer_saves_in_its_grace_period_and_says_why_it_waits(
    queues: Queues, workspace: Workspace
) -> None:
    workspace.until_job(NAME, is_running(incarnation=1, beyond=1), timeout=SECONDS)
    workspace.apply(queued(queues, URGENT, "high", {"trainer.config.numRollout": 1}))
    waiting = workspace.until_job(
        NAME,
        lambda job: (
            status_of(job)["phase"] == "Queued" and "save and end" not in condition(job, "TrainerReady")["message"]
        ),
        timeout=SECONDS,
    )
    assert reason(waiting) == "Evicted"
    assert "Preempted to accommodate" in condition(waiting, "TrainerReady")["message"]
    assert reason(waiting, "Progressing") == "NotRunning", condition(waiting, "Progressing")
    assert waiting["status"]["checkpoint"]["rolloutId"] == trained(waiting) - 1
    assert waiting["status"]["attempt"] == 1


def test_a_finished_job_frees_its_quota_and_the_preempted_one_goes_on_from_its_checkpoint(
    queues: Queues, workspace: Workspace
) -> None:
    before = workspace.job(NAME)
    workspace.until_job(URGENT, lambda job: status_of(job)["phase"] == "Succeeded", timeout=SECONDS)
    resumed = workspace.until_job(NAME, is_running(incarnation=2, beyond=trained(before)), timeout=SECONDS)
    assert queues.workloads_of(URGENT) == []
    assert resumed["status"]["attempt"] == 1
    second = claims(workspace, resumed)[1]
    assert second["firstRollout"] == trained(before)
    assert second["resumedFrom"]


def test_a_lost_head_is_replaced_in_the_same_quota_and_who_waits_goes_on_waiting(
    queues: Queues, workspace: Workspace
) -> None:
    workspace.apply(queued(queues, NEXT, "low", {"trainer.config.numRollout": 1}))
    workspace.until_job(NEXT, lambda job: reason(job) == "Queued", timeout=SECONDS)
    before = workspace.job(NAME)
    workspace.kubectl.ok("delete", "pod", name_of(head(workspace, NAME)), "--wait=false")
    job = workspace.until_job(NAME, is_running(incarnation=3, beyond=trained(before)), timeout=SECONDS)
    record = job["status"]["attempts"][-1]
    assert (job["status"]["attempt"], record["restarts"]) == (1, 1), record
    assert reason(workspace.job(NEXT)) == "Queued"
    assert "insufficient unused quota" in condition(workspace.job(NEXT), "TrainerReady")["message"]


def test_the_next_in_the_queue_is_admitted_once_the_job_has_ended(queues: Queues, workspace: Workspace) -> None:
    workspace.until_job(NAME, lambda job: status_of(job)["phase"] == "Succeeded", timeout=SECONDS)
    workspace.until_job(NEXT, lambda job: status_of(job)["phase"] == "Running", timeout=SECONDS)
    assert queues.workloads_of(NAME) == []
    workspace.delete(NEXT)


def test_an_agent_server_that_kueue_holds_back_is_said_and_holds_no_quota_of_trainers(
    queues: Queues, workspace: Workspace
) -> None:
    queues.hold("default", hold=True)
    try:
        workspace.apply(queued(queues, STUCK, "high"))
        stuck = workspace.until_job(STUCK, lambda job: reason(job, "AgentServerReady") == "HeldByQueue", timeout=120)
        assert "in LocalQueue default" in condition(stuck, "AgentServerReady")["message"]
        assert queues.workloads_of(STUCK) == []
    finally:
        queues.hold("default", hold=False)
    workspace.until_job(STUCK, lambda job: condition(job, "AgentServerReady")["status"] == "True", timeout=SECONDS)
