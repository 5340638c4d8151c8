"""One run that loses operator, supervisor, agent server and head pod, one after the other, and still ends well.

The tests share the run and follow each other: each waits until the run is where it may hurt it.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.kube import PODS, Manifest, condition, is_going, name_of
from support.kubectl import OPERATOR, SYSTEM, Kubectl
from support.node import signal
from support.workspace import SANDBOXES, Workspace, example, json_lines, trained

pytestmark = pytest.mark.cluster

NAME = "tough"
ROLLOUTS = 7
SECONDS = 300
"""Longest wait for one thing; a rollout takes 15 s on an idle machine of two cores."""
ASK_RAY = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8265/api/jobs/').read().decode())"


@pytest.fixture(scope="module", autouse=True)
def _run(workspace: Workspace) -> Iterator[None]:
    workspace.apply(example("job.yaml", {"trainer.config.numRollout": ROLLOUTS}, name=NAME))
    yield
    workspace.delete(NAME)
    workspace.until_held(lambda held: not held, NAME, timeout=60)


def head_pod(workspace: Workspace) -> Manifest:
    selector = f"harborrl.dev/job={NAME},ray.io/node-type=head"
    return workspace.kube.until(bool, PODS, workspace.namespace, selector=selector, timeout=SECONDS)[0]


def until_trained(workspace: Workspace, count: int) -> Manifest:
    return workspace.until_job(NAME, lambda job: trained(job) >= count, timeout=SECONDS)


def test_a_new_operator_goes_on_where_the_last_one_was(kubectl: Kubectl, workspace: Workspace) -> None:
    workspace.until_sandboxes_run(NAME, timeout=SECONDS)
    head, system = head_pod(workspace), kubectl.within(SYSTEM)
    system.ok("delete", "pod", "--selector=app.kubernetes.io/name=harborrl")
    system.ok("rollout", "status", OPERATOR, "--timeout=120s", timeout=130)
    job = until_trained(workspace, 1)
    assert (job["status"]["phase"], job["status"]["attempt"]) == ("Running", 1)
    assert name_of(head_pod(workspace)) == name_of(head)


def test_a_killed_supervisor_finds_its_driver_again(workspace: Workspace) -> None:
    before = until_trained(workspace, 1)
    head = head_pod(workspace)
    container = supervisor_of(head)["containerID"].rpartition("/")[2]
    signal(workspace, container, "KILL")
    name = name_of(head)

    def restarted(pods: list[Manifest]) -> bool:
        supervisor = supervisor_of(next(pod for pod in pods if name_of(pod) == name))
        return bool(supervisor["restartCount"] == 1 and "running" in supervisor["state"])

    pods = workspace.kube.until(restarted, PODS, workspace.namespace, timeout=60)
    ended = supervisor_of(next(pod for pod in pods if name_of(pod) == name))["lastState"]["terminated"]
    assert ended["exitCode"] == 128 + 9
    after = until_trained(workspace, trained(before) + 1)
    assert after["status"]["trainer"]["submissionId"] == f"{NAME}-a1-i1"
    assert submissions(workspace, name) == [f"{NAME}-a1-i1"]


def supervisor_of(pod: Manifest) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in pod["status"]["initContainerStatuses"] if c["name"] == "supervisor")
    return found


def submissions(workspace: Workspace, head: str) -> list[str]:
    """What Ray itself says it has been given."""
    jobs = json.loads(workspace.kubectl.ok("exec", head, "--container=ray-head", "--", "python", "-c", ASK_RAY))
    return [job["submission_id"] for job in jobs if job["submission_id"]]


def test_the_trials_of_a_killed_agent_server_are_told_and_their_sandboxes_swept(workspace: Workspace) -> None:
    seen = workspace.until_sandboxes_run(NAME, timeout=SECONDS)
    # Sandboxes of the next rollout: those that run already may be about to give their reward.
    lost = workspace.until_sandboxes_run(NAME, besides=seen, timeout=SECONDS)
    selector = f"harborrl.dev/job={NAME},harborrl.dev/role=agent-server"
    pods = [p for p in workspace.kube.objects(PODS, workspace.namespace, selector) if not is_going(p)]
    workspace.kubectl.ok("delete", "pod", *map(name_of, pods), "--grace-period=1", "--wait=false")

    def swept(found: list[Manifest]) -> bool:
        return lost.isdisjoint(map(name_of, found))

    workspace.kube.until(swept, PODS, SANDBOXES, selector=f"harborrl.dev/job={NAME}", timeout=120)
    # Two more: status is up to 10 s behind, so the next rollout that it counts may be the one before the hurt one.
    job = until_trained(workspace, trained(workspace.job(NAME)) + 2)
    assert told_as_lost(workspace, job) > 0
    assert (
        job["status"]["attempt"] <= 2
    )  # an attempt is lost when every group met the dying server twice (docs/limits.md)


def told_as_lost(workspace: Workspace, job: Manifest) -> int:
    """Trials whose record says that they were lost, or that they stand in for one that was."""
    logs = workspace.files(f"trials/{job['status']['runPath']}", "*/trials/*.jsonl")
    records = [record for log in logs.values() for record in json_lines(log)]
    return sum(record["status"] == "aborted" or record["replaced"] is not None for record in records)


def test_a_lost_head_pod_is_another_attempt_that_goes_on_from_the_checkpoint(workspace: Workspace) -> None:
    before = until_trained(workspace, 1)["status"]
    saved, attempt = before["checkpoint"]["rolloutId"], before["attempt"]
    workspace.until_sandboxes_run(NAME, timeout=SECONDS)
    head = name_of(head_pod(workspace))
    workspace.kubectl.ok("delete", "pod", head, "--wait=false")
    workspace.until_job(NAME, lambda job: job["status"]["attempt"] == attempt + 1, timeout=SECONDS)
    done = workspace.until_job(NAME, lambda job: condition(job, "Finished")["status"] == "True", timeout=2 * SECONDS)
    assert condition(done, "Succeeded")["status"] == "True", condition(done, "Failed")["message"]
    lost, last = done["status"]["attempts"][-2:]
    assert (lost["outcome"], lost["failureClass"], last["outcome"]) == ("Failed", "infrastructure", "Succeeded")
    assert lost["message"]
    assert done["status"]["rollout"]["trained"] == ROLLOUTS
    claims = json.loads(workspace.read(f"cat checkpoints/{done['status']['runPath']}/index.json"))["claims"]
    assert [claim["attempt"] for claim in claims] == list(range(1, attempt + 2))
    assert [claim["resumedFrom"] is None for claim in claims] == [True] + [False] * attempt
    assert claims[-1]["firstRollout"] > saved
