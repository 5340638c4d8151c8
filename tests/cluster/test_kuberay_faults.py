"""What KubeRay, kubelet and careless hands do to a training cluster, and how the run goes on.

Head pod lost and supervisor killed: test_resilience.py. Image that cannot be pulled and pod that fits no node:
test_bad_input.py. The first tests share one run and follow each other.
"""

from collections.abc import Iterator

import pytest

from support.kube import DEPLOYMENTS, PODS, RAY_CLUSTERS, Manifest, condition, name_of, status_of
from support.node import signal
from support.workspace import Workspace, example, trained

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

NAME = "hurt"
ROLLOUTS = 16
SECONDS = 420
MEMORY = 8 * 1024**3
"""The limit of a trainer pod in the example."""
EXHAUST = f"blocks = []\nwhile True: blocks.append(bytearray(64 * 1024**2)); assert len(blocks) < {MEMORY // 2**26} + 9"


@pytest.fixture(scope="module")
def run(workspace: Workspace) -> Iterator[str]:
    changes = {"trainer.config.numRollout": ROLLOUTS, "retries.maxAttempts": 9}
    workspace.apply(example("job.yaml", changes, name=NAME))
    yield NAME
    workspace.delete(NAME)
    workspace.until_held(lambda held: not held, NAME, timeout=90)


def pods(workspace: Workspace, job: str, node_type: str) -> list[Manifest]:
    return workspace.trainer_pods(job, node_type, timeout=SECONDS)


def record_of(job: Manifest, attempt: int) -> Manifest:
    found: Manifest = next(one for one in job["status"]["attempts"] if one["number"] == attempt)
    return found


def ended_at(job: Manifest, attempt: int) -> int:
    rollout: int = record_of(job, attempt).get("atRollout", 0)
    return rollout


def goes_on(workspace: Workspace, before: Manifest) -> Manifest:
    """The job once a later attempt has trained a rollout more, from the checkpoint on and never from 0."""
    attempt = before["status"]["attempt"]

    def further(job: Manifest) -> bool:
        """An attempt that ends goes on training until its last pod has ended."""
        return int(job["status"]["attempt"]) == attempt + 1 and trained(job) > ended_at(job, attempt)

    job = workspace.until_job(NAME, further, timeout=SECONDS)
    record = record_of(job, attempt)
    assert (record["outcome"], record["failureClass"]) == ("Failed", "infrastructure"), record
    assert record["message"]
    return job


def advancing(workspace: Workspace, run: str, steps: int) -> Manifest:
    return workspace.until_job(
        run,
        lambda job: trained(job) >= steps and job["status"]["phase"] == "Running",
        timeout=SECONDS,
    )


def test_a_lost_worker_is_another_attempt_that_goes_on(workspace: Workspace, run: str) -> None:
    before = advancing(workspace, run, 1)
    worker = pods(workspace, run, "worker")[0]
    workspace.kubectl.ok("delete", "pod", name_of(worker), "--grace-period=1", "--wait=false")
    goes_on(workspace, before)


def test_a_head_that_ran_out_of_memory_says_so_and_goes_on(workspace: Workspace, run: str) -> None:
    before = advancing(workspace, run, 2)
    head = pods(workspace, run, "head")[0]
    container = next(c for c in head["status"]["containerStatuses"] if c["name"] == "ray-head")
    workspace.kubectl("exec", name_of(head), "--container=ray-head", "--", "python", "-c", EXHAUST, timeout=120)
    # The kernel ends the greediest process of the container, not always the first one: the container follows.
    signal(workspace, container["containerID"].rpartition("/")[2], "KILL")
    after = goes_on(workspace, before)
    record = record_of(after, before["status"]["attempt"])
    assert record["cause"] == "OOMKilled", record
    assert "raise trainer.resources.limits.memory" in record["message"], record


def test_a_cluster_scaled_by_hand_loses_its_attempt_and_the_next_one_has_its_own_shape(
    workspace: Workspace, run: str
) -> None:
    before = advancing(workspace, run, 3)
    cluster = before["status"]["trainer"]["rayCluster"]
    patch = '[{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 0},'
    patch += '{"op": "replace", "path": "/spec/workerGroupSpecs/0/minReplicas", "value": 0}]'
    workspace.kubectl.ok("patch", "raycluster", cluster, "--type=json", f"--patch={patch}")
    after = goes_on(workspace, before)
    ray = workspace.kube.get(RAY_CLUSTERS, after["status"]["trainer"]["rayCluster"], workspace.namespace)
    assert ray is not None
    assert ray["spec"]["workerGroupSpecs"][0]["replicas"] == 1


def test_a_cluster_deleted_by_hand_is_another_attempt_that_goes_on(workspace: Workspace, run: str) -> None:
    before = advancing(workspace, run, 4)
    workspace.kubectl.ok("delete", "raycluster", before["status"]["trainer"]["rayCluster"], "--wait=false")
    goes_on(workspace, before)
    done = workspace.until_job(run, lambda job: condition(job, "Finished")["status"] == "True", timeout=2 * SECONDS)
    assert condition(done, "Succeeded")["status"] == "True", condition(done, "Failed")["message"]
    assert trained(done) == ROLLOUTS


def test_a_job_made_while_kuberay_is_down_says_so_and_starts_when_it_is_back(workspace: Workspace) -> None:
    kuberay = next(d for d in workspace.kube.objects(DEPLOYMENTS) if name_of(d) == "kuberay-operator")
    system = workspace.kubectl.within(kuberay["metadata"]["namespace"])
    system.ok("scale", "deployment/kuberay-operator", "--replicas=0")
    try:
        workspace.apply(example("job.yaml", {"trainer.config.numRollout": 1}, name="early"))
        job = workspace.until_job(
            "early", lambda job: condition(job, "TrainerReady")["reason"] == "KubeRaySilent", timeout=SECONDS
        )
        assert "kuberay-operator" in condition(job, "TrainerReady")["message"]
    finally:
        system.ok("scale", "deployment/kuberay-operator", "--replicas=1")
    done = workspace.until_job("early", lambda job: condition(job, "Finished")["status"] == "True", timeout=SECONDS)
    assert condition(done, "Succeeded")["status"] == "True", condition(done, "Failed")["message"]
    workspace.delete("early")
    workspace.until_held(lambda held: not held, "early", timeout=60)


def test_a_driver_that_never_starts_ends_the_job_at_the_start_deadline(workspace: Workspace) -> None:
    changes = {"trainer.startDeadlineSeconds": 90, "checkpoint.graceSeconds": 5}
    workspace.apply(example("job.yaml", changes, name="mute"))

    def supervised(items: list[Manifest]) -> list[str]:
        states = [s for pod in items for s in status_of(pod).get("initContainerStatuses") or []]
        return [s["containerID"] for s in states if s["name"] == "supervisor" and "running" in s["state"]]

    selector = "harborrl.dev/job=mute,ray.io/node-type=head"
    head = workspace.kube.until(
        lambda items: bool(supervised(items)), PODS, workspace.namespace, selector=selector, timeout=SECONDS
    )
    signal(workspace, supervised(head)[0].rpartition("/")[2], "STOP")
    job = workspace.until_job("mute", lambda job: condition(job, "Failed")["status"] == "True", timeout=SECONDS)
    failed = condition(job, "Failed")
    assert failed["reason"] == "StartDeadlineExceeded", failed
    assert "90" in failed["message"]
    assert "supervisor" in failed["message"]
    workspace.delete("mute")
    workspace.until_held(lambda held: not held, "mute", timeout=90)
