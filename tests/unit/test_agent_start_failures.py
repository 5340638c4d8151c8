"""A pod that is refused or does not start says why, in the cluster's own words, and what to do about it."""

from pathlib import Path
from typing import Any

import pytest

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.allocating import Patience
from harborrl_agent_server.sandboxes.cluster import KubeError
from harborrl_agent_server.sandboxes.pods import State, Verdict
from harborrl_agent_server.sandboxes.reasons import advice, told
from harborrl_agent_server.sandboxes.refusals import refusal_of
from support.sandbox_api import SandboxApi, provided, sandbox_of

POD_SECURITY = (
    'pods "sb" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false,'
    ' runAsNonRoot != true (pod or container "main" must set securityContext.runAsNonRoot=true)'
)

BUSY = 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified; please apply your changes'


@pytest.mark.parametrize(
    ("status", "message", "reason", "passes", "what_to_do"),
    [
        (403, 'pods "sb" is forbidden: exceeded quota: q, requested: pods=1', "QuotaExceeded", True, "raise the quota"),
        (409, BUSY, "QuotaBusy", True, "--start-concurrency"),
        (403, 'pods "sb" is forbidden: failed quota: q: must specify cpu', "ResourcesUnstated", False, "defaults"),
        (403, POD_SECURITY, "PodSecurityRefused", False, "enforce=baseline"),
        (403, 'pod rejected: RuntimeClass "kata" not found', "RuntimeClassMissing", False, "runtimeClassName"),
        (403, "no PriorityClass with name low was found", "PriorityClassMissing", False, "priorityClassName"),
        (403, "maximum memory usage per Container is 1Gi, but limit is 2Gi", "LimitRangeRefused", False, "LimitRange"),
        (
            403,
            "unable to create new content in namespace x because it is being terminated",
            "NamespaceEnding",
            False,
            "",
        ),
        (
            403,
            'error looking up service account x/default: serviceaccount "default" not found',
            "NamespaceNew",
            True,
            "",
        ),
        (404, 'namespaces "x" not found', "NamespaceMissing", False, "create the sandbox namespace"),
        (500, 'failed calling webhook "m.example": no endpoints', "WebhookFailed", True, "does not answer"),
        (403, 'admission webhook "v.example" denied the request: no', "PolicyDenied", False, "policy"),
        (422, "ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no", "PolicyDenied", False, "policy"),
        (403, 'pods is forbidden: User "sa" cannot create resource', "RightsMissing", False, "harborrl-sandboxes"),
        (422, "Pod is invalid: spec.x: Invalid value", "PodInvalid", False, "podOverrides"),
        (429, "too many requests", "PodRefused", True, "check"),
        (503, "etcd is away", "PodRefused", True, "check"),
        (400, "the object is no pod", "PodRefused", False, "check"),
    ],
)
def test_a_refused_pod_is_told_apart(status: int, message: str, reason: str, passes: bool, what_to_do: str) -> None:
    refusal = refusal_of(KubeError(status, "", message))
    assert (refusal.reason, refusal.passes) == (reason, passes)
    assert what_to_do in refusal.advice


@pytest.mark.parametrize(
    ("reason", "message", "what_to_do"),
    [
        ("Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.", "lower the task's resources"),
        ("Unschedulable", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "free GPUs"),
        ("Unschedulable", "3 node(s) didn't match Pod's node affinity/selector.", "nodeSelectorForGpu"),
        ("Unschedulable", "3 node(s) had untolerated taint {a: b}.", "tolerations"),
        ("Unschedulable", "1 Insufficient cpu, 6 node(s) had untolerated taint {a: b}.", "lower the task's resources"),
        ("ImagePullFailed", 'pull access denied, authorization failed: "unauthorized"', "pullSecrets"),
        ("ImagePullFailed", "registry/x:1: not found", "no such image"),
        ("ImagePullFailed", "write: no space left on device", "no room"),
        ("ImagePullFailed", "dial tcp: lookup registry: no such host", "registry and agentServer"),
        ("InvalidImageName", "couldn't parse image name", "image's name"),
        ("ErrImageNeverPull", "Container image is not present with pull policy of Never", "not on the node"),
        ("CreateContainerConfigError", 'configmap "x" not found', "ConfigMap"),
        ("StartError", 'exec: "/bin/sh": stat /bin/sh: no such file or directory', "needs /bin/sh"),
        ("CreateContainerError", 'exec: "/bin/sh": permission denied', "needs /bin/sh"),
        ("OOMKilled", "the container ended with exit code 137.", "memory_mb"),
        ("Evicted", "The node was low on resource: memory.", "no room left"),
        ("Deleted", "somebody deleted the pod", "a drain"),
        ("Error", "the container ended with exit code 1.", "look at the pod's events"),
    ],
)
def test_each_reason_has_its_advice(reason: str, message: str, what_to_do: str) -> None:
    assert what_to_do in advice(Verdict(State.FAILED, reason, message))


def event(reason: str, message: str, at: str = "2026-01-01T00:00:00Z", kind: str = "Warning") -> dict[str, Any]:
    return {"type": kind, "reason": reason, "message": message, "lastTimestamp": at, "metadata": {"name": reason}}


SECRET = event("FailedToRetrieveImagePullSecret", "Unable to retrieve some image pull secrets (mine)")
BACK_OFF = event("BackOff", "Back-off pulling image", "2026-01-01T00:01:00Z")


@pytest.mark.parametrize(
    ("seen", "events", "reason", "says", "what_to_do"),
    [
        pytest.param(
            Verdict(State.PENDING, "ContainerCreating", ""),
            [event("FailedMount", 'configmap "data" not found')],
            *("VolumeNotMounted", "data", "podOverrides"),
            id="a volume",
        ),
        pytest.param(
            Verdict(State.PENDING, "ContainerCreating", ""),
            [event("FailedCreatePodSandBox", 'no runtime for "kata" is configured')],
            *("PodSandboxFailed", "kata", "runtimeClassName"),
            id="a runtime class without a handler on the node",
        ),
        pytest.param(
            Verdict(State.PENDING, "ContainerCreating", ""),
            [event("FailedCreatePodSandBox", 'plugin type="bridge" failed (add): no IP addresses available')],
            *("PodSandboxFailed", "no IP addresses", "network plugin"),
            id="the network plugin",
        ),
        pytest.param(
            Verdict(State.PENDING, "Pending", ""),
            [event("FailedScheduling", "0/1 nodes are available: 1 Too many pods.")],
            *("Unschedulable", "Too many pods", "add nodes"),
            id="the scheduler",
        ),
        pytest.param(
            Verdict(State.TROUBLED, "ImagePullFailed", "pull access denied"),
            [SECRET, BACK_OFF],
            *("PullSecretMissing", "(mine)", "pullSecrets"),
            id="a pull secret that is not there",
        ),
        pytest.param(
            Verdict(State.TROUBLED, "ImagePullFailed", "pull access denied"),
            [BACK_OFF],
            *("ImagePullFailed", "access denied", "pullSecrets"),
            id="a pull that fails by itself",
        ),
        pytest.param(
            Verdict(State.PENDING, "ContainerCreating", ""),
            [BACK_OFF, event("FailedMount", "older"), event("Scheduled", "newer", "2026-01-02T00:00:00Z", "Normal")],
            *("BackOff", "Back-off pulling", "look at the pod's events"),
            id="the newest warning",
        ),
        pytest.param(
            Verdict(State.PENDING, "Unschedulable", "0/1 nodes"),
            [event("FailedMount", "of something else")],
            *("Unschedulable", "0/1 nodes", "add nodes"),
            id="a status that says it",
        ),
    ],
)
def test_events_say_what_the_status_does_not(
    seen: Verdict, events: list[dict[str, Any]], reason: str, says: str, what_to_do: str
) -> None:
    verdict = told(seen, events)
    assert (verdict.reason, says in verdict.message, what_to_do in advice(verdict)) == (reason, True, True)


@pytest.mark.parametrize(
    ("status", "happened", "said"),
    [
        pytest.param(
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "denied"}}}]},
            SECRET,
            r"PullSecretMissing: denied; .*\(mine\).*images\.pullSecrets",
            id="when a pull has failed for long enough",
        ),
        pytest.param(
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]},
            event("FailedMount", 'secret "x" not found'),
            r"VolumeNotMounted: not ready within 0 s: secret .x. not found; what podOverrides mount",
            id="when the start budget is spent",
        ),
    ],
)
async def test_a_trial_is_told_what_the_events_say(
    status: dict[str, Any], happened: dict[str, Any], said: str, tmp_path: Path
) -> None:
    api = SandboxApi()
    api.status = lambda _: status
    async with provided(api, tmp_path) as provider:
        provider.patience = Patience(pull_s=0)
        sandbox = sandbox_of(provider, tmp_path, build_timeout_sec=0.1)
        api.objects[f"/api/v1/namespaces/{provider.namespace}/events/one"] = happened
        with pytest.raises(SandboxStartError, match=said):
            await sandbox.start(force_build=False)


async def test_events_that_cannot_be_read_leave_what_the_status_says(tmp_path: Path) -> None:
    api = SandboxApi()
    api.status = lambda _: {"containerStatuses": [{"state": {"waiting": {"reason": "InvalidImageName"}}}]}

    def blind(_: str, path: str) -> None:
        if path.endswith("/events"):
            raise KubeError(403, "Forbidden", "no list")

    async with provided(api, tmp_path) as provider:
        api.refuse = blind
        with pytest.raises(SandboxStartError, match="InvalidImageName"):
            await sandbox_of(provider, tmp_path).start(force_build=False)
