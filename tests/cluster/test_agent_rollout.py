"""The agent server of a running job is changed, badly changed and changed back, and no trial is aborted."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.kube import DEPLOYMENTS, PODS, SERVICES, Manifest, condition, is_going, labels_of, name_of, status_of
from support.workspace import SANDBOXES, Workspace, example, json_lines

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

NAME = "rolling"
ROLLOUTS = 8
SECONDS = 420
DASHBOARD = 8080
VERSION = "harborrl.dev/agent-version"


@pytest.fixture(scope="module", autouse=True)
def _run(workspace: Workspace) -> Iterator[None]:
    changes = {"trainer.config.numRollout": ROLLOUTS, "agentServer.dashboardPort": DASHBOARD}
    workspace.apply(example("job.yaml", changes, name=NAME))
    yield
    workspace.delete(NAME)
    workspace.until_held(lambda held: not held, NAME, timeout=90)


def change(workspace: Workspace, **server: Any) -> None:
    patch = json.dumps({"spec": {"agentServer": server}})
    workspace.kubectl.ok("patch", "hrl", NAME, "--type=merge", "--patch", patch)


def versions(workspace: Workspace) -> set[str]:
    """Of the Deployments that are there."""
    servers = workspace.kube.objects(DEPLOYMENTS, workspace.namespace, f"harborrl.dev/job={NAME}")
    return {labels_of(server)[VERSION] for server in servers}


def serving(workspace: Workspace) -> str:
    service = workspace.kube.get(SERVICES, f"{NAME}-agent", workspace.namespace)
    assert service is not None
    version: str = service["spec"]["selector"][VERSION]
    return version


def server_pods(workspace: Workspace) -> dict[str, Manifest]:
    selector = f"harborrl.dev/job={NAME},harborrl.dev/role=agent-server"
    return {name_of(pod): pod for pod in workspace.kube.objects(PODS, workspace.namespace, selector)}


def until_reason(workspace: Workspace, *reasons: str) -> Manifest:
    return workspace.until_job(
        NAME, lambda job: condition(job, "AgentServerReady")["reason"] in reasons, timeout=SECONDS
    )


def test_the_dashboard_is_reached_through_a_port_forward_and_shows_the_trials_that_run(workspace: Workspace) -> None:
    running = workspace.until_sandboxes_run(NAME, timeout=SECONDS)
    boxes = workspace.kube.objects(PODS, SANDBOXES, f"harborrl.dev/job={NAME},harborrl.dev/trial")
    trials = {labels_of(box)["harborrl.dev/trial"] for box in boxes if name_of(box) in running}
    (pod,) = server_pods(workspace)
    with workspace.kubectl.forwarded(pod, DASHBOARD) as url, httpx.Client(trust_env=False, timeout=30) as client:
        page = client.get(url)
        facts, state = (client.get(f"{url}/api/{name}").json() for name in ("facts", "state"))
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    assert NAME in json.dumps(facts)
    assert trials
    assert [trial for trial in trials if trial not in json.dumps(state)] == []


def test_a_change_with_trials_in_flight_moves_new_trials_to_the_new_version_and_lets_the_old_ones_end(
    workspace: Workspace,
) -> None:
    workspace.until_sandboxes_run(NAME, timeout=SECONDS)
    old = serving(workspace)
    (old_pod,) = server_pods(workspace)
    change(workspace, maxConcurrent=10)
    until_reason(workspace, "RollingOut")
    assert serving(workspace) == old
    seen: dict[str, set[str]] = {}

    def old_has_gone(pods: list[Manifest]) -> bool:
        """While it goes, note of which server each sandbox is and in what state the old one is."""
        for box in workspace.kube.objects(PODS, SANDBOXES, f"harborrl.dev/job={NAME},harborrl.dev/trial"):
            seen.setdefault(labels_of(box)["harborrl.dev/agent-server"], set()).add(name_of(box))
        return old_pod not in [name_of(pod) for pod in pods]

    workspace.kube.until(old_has_gone, PODS, workspace.namespace, selector=f"harborrl.dev/job={NAME}", timeout=SECONDS)
    job = until_reason(workspace, "Ready")
    assert versions(workspace) == {serving(workspace)} != {old}
    assert job["status"]["attempt"] == 1
    (new_pod,) = [name for name, pod in server_pods(workspace).items() if not is_going(pod)]
    ran = workspace.until_sandboxes_run(NAME, timeout=SECONDS)
    boxes = workspace.kube.objects(PODS, SANDBOXES, f"harborrl.dev/job={NAME},harborrl.dev/trial")
    assert {labels_of(box)["harborrl.dev/agent-server"] for box in boxes if name_of(box) in ran} <= {new_pod}


def test_a_version_that_cannot_start_leaves_the_one_that_serves_alone_and_says_so(workspace: Workspace) -> None:
    before, image = serving(workspace), "localhost/harborrl/there-is-none:1"
    change(workspace, image=image)
    job = until_reason(workspace, "RolloutBlocked")
    said = condition(job, "AgentServerReady")
    assert said["status"] == "True"
    assert image in said["message"]
    assert serving(workspace) == before
    trained = job["status"]["rollout"]["trained"]
    workspace.until_job(NAME, lambda job: job["status"]["rollout"]["trained"] > trained, timeout=SECONDS)


def test_taking_the_bad_change_back_leaves_the_old_version_alone(workspace: Workspace) -> None:
    before = serving(workspace)
    change(workspace, image=None)
    until_reason(workspace, "Ready")

    def alone(servers: list[Manifest]) -> bool:
        return [labels_of(server)[VERSION] for server in servers] == [before]

    workspace.kube.until(alone, DEPLOYMENTS, workspace.namespace, selector=f"harborrl.dev/job={NAME}", timeout=SECONDS)


def test_the_run_ends_with_no_trial_aborted_or_run_twice(workspace: Workspace) -> None:
    done = workspace.until_job(NAME, lambda job: condition(job, "Finished")["status"] == "True", timeout=2 * SECONDS)
    assert condition(done, "Succeeded")["status"] == "True", condition(done, "Failed")["message"]
    rollout = status_of(done)["rollout"]
    assert (rollout["trained"], rollout["aborted"], rollout["lostRollouts"]) == (ROLLOUTS, 0, 0)
    assert [attempt["outcome"] for attempt in done["status"]["attempts"]] == ["Succeeded"]
    logs = workspace.files(f"trials/{done['status']['runPath']}", "*/trials/*.jsonl")
    records = [record for log in logs.values() for record in json_lines(log)]
    assert len(records) == ROLLOUTS * 8
    assert [record for record in records if record["status"] == "aborted" or record["replaced"] is not None] == []
