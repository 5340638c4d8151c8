"""What keeps a child from starting is named in the condition of the part that it concerns."""

from typing import Any

import pytest

from harborrl_operator.draft import Plan
from support import hrl
from support.hrl import condition, decide, message, then


def waiting(reason: str, text: str, image: str = "registry.example/x:1") -> list[dict[str, Any]]:
    return [{"name": "c", "image": image, "state": {"waiting": {"reason": reason, "message": text}}}]


def unschedulable(text: str) -> list[dict[str, Any]]:
    return [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}]


BAD_STARTS = [
    ({"containerStatuses": waiting("ImagePullBackOff", "no such host")}, "ImagePullFailed", "registry.example/x:1"),
    ({"containerStatuses": waiting("InvalidImageName", "bad")}, "ImagePullFailed", "InvalidImageName"),
    ({"conditions": unschedulable("0/1 nodes: Insufficient cpu.")}, "Unschedulable", "Insufficient cpu"),
    (
        {"conditions": unschedulable('persistentvolumeclaim "x" not found')},
        "Unschedulable",
        'persistentvolumeclaim "x" not found',
    ),
    (
        {"containerStatuses": waiting("CreateContainerConfigError", 'secret "wandb" not found')},
        "ContainerConfigError",
        'secret "wandb" not found',
    ),
    (
        {
            "containerStatuses": [
                {
                    "name": "c",
                    "image": "x",
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"exitCode": 2, "message": "Traceback\nImportError: no module x\n"}},
                }
            ]
        },
        "CrashLoop",
        "ImportError: no module x",
    ),
]


@pytest.mark.parametrize(
    ("status", "reason", "says"), BAD_STARTS, ids=[f"{b[1]}-{i}" for i, b in enumerate(BAD_STARTS)]
)
class TestAPodThatCannotStart:
    def check(self, decided: Plan, kind: str, reason: str, says: str) -> None:
        assert condition(decided, kind) == ("False", reason)
        assert says in message(decided, kind)
        assert decided.status.reason == reason

    def test_of_the_agent_server_is_named(self, status: dict[str, Any], reason: str, says: str) -> None:
        seen = hrl.world(deployment=hrl.deployment(ready=False), agent_pods=(hrl.agent_pod(hrl.job(), **status),))
        self.check(decide(hrl.job(), seen), "AgentServerReady", reason, says)

    def test_of_the_preflight_is_named(self, status: dict[str, Any], reason: str, says: str) -> None:
        job = hrl.job()
        pod = hrl.preflight_pod(job)
        pod["status"] = {"phase": "Pending", **status}
        self.check(decide(job, hrl.world(deployment=hrl.deployment(), preflight_pod=pod)), "Admitted", reason, says)

    def test_of_the_trainer_is_named(self, status: dict[str, Any], reason: str, says: str) -> None:
        job = hrl.job()
        pod = hrl.trainer_pod("head", phase="Pending", ready=False)
        pod["status"].update(status)
        self.check(decide(job, hrl.running_world(job, trainer_pods=(pod,))), "TrainerReady", reason, says)


def test_a_quota_that_refuses_the_agent_servers_pod_is_named() -> None:
    failure = [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small"}]
    decided = decide(hrl.job(), hrl.world(deployment=hrl.deployment(ready=False, conditions=failure)))
    assert condition(decided, "AgentServerReady") == ("False", "PodsRefused")
    assert "exceeded quota: small" in message(decided, "AgentServerReady")


def test_a_quota_that_refuses_the_trainers_pods_is_named() -> None:
    job = hrl.job()
    failure = [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: gpus"}]
    cluster = hrl.ray_cluster(job, conditions=failure)
    decided = decide(job, hrl.running_world(job, ray_clusters={"quickstart-a1": cluster}, trainer_pods=()))
    assert condition(decided, "TrainerReady") == ("False", "PodsRefused")


POD_SECURITY = (
    'pods "quickstart-a1-head" is forbidden: violates PodSecurity "baseline:latest": non-default capabilities'
    ' (container "trainer" must not include "IPC_LOCK" in securityContext.capabilities.add)'
)


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        ("exceeded quota: gpus, requested: pods=1", "Raise the quota or lower the requests."),
        ("failed quota: gpus: must specify requests.cpu", "trainer.resources, agentServer.resources"),
        (POD_SECURITY, "Set trainer.rdma.lockMemory: false if RDMA works without it, or have an administrator label"),
        ('violates PodSecurity "restricted:latest": host namespaces', "pod-security.kubernetes.io/enforce=privileged"),
        ('admission webhook "policy.example" denied the request: no', "whoever runs the admission rule or webhook"),
    ],
)
def test_the_remedy_is_that_of_who_refuses_the_pods(refusal: str, remedy: str) -> None:
    job = hrl.job()
    cluster = hrl.ray_cluster(job, conditions=[{"type": "ReplicaFailure", "status": "True", "message": refusal}])
    decided = decide(job, hrl.running_world(job, ray_clusters={"quickstart-a1": cluster}, trainer_pods=()))
    said = message(decided, "TrainerReady")
    assert f"{refusal}. " in said
    assert remedy in said
    assert ("Raise the quota" in said) == refusal.startswith("exceeded quota")
    assert ("lockMemory" in said) == ("IPC_LOCK" in refusal)


@pytest.mark.parametrize(
    ("age", "status", "reason"),
    [(31, {}, "KubeRaySilent"), (29, {}, "Starting"), (300, {"state": "ready"}, "Starting")],
    ids=["old and untouched", "young", "old and seen"],
)
def test_a_cluster_that_kuberay_leaves_alone_is_reported(age: float, status: dict[str, Any], reason: str) -> None:
    job = hrl.job()
    cluster = hrl.ray_cluster(job, age=age, **status)
    decided = decide(job, hrl.running_world(job, ray_clusters={"quickstart-a1": cluster}, trainer_pods=()))
    assert condition(decided, "TrainerReady") == ("False", reason)


def test_a_pod_that_hangs_without_a_state_is_reported_with_its_newest_warning() -> None:
    pod = hrl.agent_pod(hrl.job(), age=90)
    warnings = {pod["metadata"]["name"]: "MountVolume failed"}
    seen = hrl.world(deployment=hrl.deployment(ready=False), agent_pods=(pod,), warnings=warnings)
    assert "MountVolume failed" in message(decide(hrl.job(), seen), "AgentServerReady")


def test_a_cluster_that_never_runs_fails_at_the_start_deadline_with_its_obstacle() -> None:
    job = hrl.job({"trainer.startDeadlineSeconds": 300})
    pods = (hrl.trainer_pod("head", ready=False, phase="Pending"),)
    pods[0]["status"]["conditions"] = unschedulable("no GPU")
    seen = hrl.running_world(job, trainer_pods=pods)
    decided = decide(then(job, decide(job, seen)), seen, after=301)
    assert condition(decided, "Failed") == ("True", "StartDeadlineExceeded")
    assert "no GPU" in message(decided, "Failed")
    assert decided.apply == ()  # not even the agent server, which the same pass deletes
