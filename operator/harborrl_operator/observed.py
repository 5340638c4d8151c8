"""One frozen value that holds everything a decision may look at; gathered by `observe`, read by `plan`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from harborrl_operator.constants import LABEL_AGENT_VERSION, LABEL_ATTEMPT, LABEL_NODE_TYPE
from harborrl_operator.models import HarborRLJob

Object = Mapping[str, Any]
"""A Kubernetes object as JSON."""

KueueAnswer = Literal["absent", "unreadable", "served"]
"""Whether the cluster has Workloads: not served, not ours to read, or listed."""

SUPERVISOR = "supervisor"
"""Container of a head pod."""


@dataclass(frozen=True)
class Address:
    """Of the API server behind its Service."""

    cidr: str
    port: int


@dataclass(frozen=True)
class Surroundings:
    """What others have a say in; empty where it was not asked for or may not be read."""

    quotas: tuple[Object, ...] = ()
    """ResourceQuotas of the sandbox namespace."""
    has_limit_range: bool = False
    """Whether a LimitRange there may give a pod the requests that it does not set."""
    nodes: tuple[Object, ...] = ()
    jobs: tuple[HarborRLJob, ...] = ()
    """Every job that can be seen, this one too."""


@dataclass(frozen=True)
class Observed:
    """The job's children and what it depends on, read live in one pass."""

    agent_servers: Mapping[str, Object] = field(default_factory=dict)
    """Deployments of the agent server by version, those that are being deleted left out."""
    agent_service: Object | None = None
    """The Service that the trainer sends trials to; its selector says which version serves."""
    agent_pods: tuple[Object, ...] = ()
    preflight_pod: Object | None = None
    ray_clusters: Mapping[str, Object] = field(default_factory=dict)
    """By name."""
    trainer_pods: tuple[Object, ...] = ()
    """Of every attempt, terminating ones included."""
    progress: str | None = None
    """The supervisor's progress document (docs/contracts.md) as it was written, None while there is none."""
    progress_exists: bool = False
    request: Object | None = None
    """The ConfigMap by which we ask the supervisor to stop its driver; looked for while there is a suspension."""
    predecessors: tuple[tuple[str, Object], ...] = ()
    """Kind and object of what is left of a deleted job of this name; looked for while there is no RayCluster."""
    strangers: tuple[str, ...] = ()
    """Kind and name of objects that bear a name of ours and belong to no job; looked for as above."""
    claims: Mapping[str, Object | None] = field(default_factory=dict)
    """PersistentVolumeClaims that the job uses, by name; None when missing."""
    sandbox_namespace: Object | None = None
    sandbox_namespace_is_hidden: bool = False
    """Whether the operator may not read it: nobody knows then whether it is there."""
    rights: Mapping[tuple[str, str], Object | None] = field(default_factory=dict)
    """Accounts, Roles and bindings by kind and name, None for a missing one; empty while they are not looked at."""
    namespace: Object | None = None
    """The job's own; None where it cannot be read."""
    network_policies: tuple[Object, ...] = ()
    """Those of the job."""
    api_server: tuple[Address, ...] = ()
    """Where the API server listens behind its Service; empty when that cannot be read."""
    surroundings: Surroundings = field(default_factory=Surroundings)
    resume_path: str | None = None
    """Run directory of the job that `resumeFrom.job` names, None when there is no such job."""
    warnings: Mapping[str, str] = field(default_factory=dict)
    """Newest Warning event of a pod that has not started, or Kueue's words on one that it holds back, by pod name."""

    workloads: Mapping[str, Object] = field(default_factory=dict)
    """Kueue's Workloads of what it holds back, by the uid of the RayCluster or pod."""

    kueue: KueueAnswer | None = None
    """What came when Workloads were asked for; None while nobody asked."""

    def workload_of(self, thing: Object) -> Object | None:
        return self.workloads.get(thing["metadata"]["uid"])

    @property
    def serving(self) -> str | None:
        """The version to which the Service sends new trials, None while there is no Service."""
        if self.agent_service is None:
            return None
        selector = self.agent_service.get("spec", {}).get("selector") or {}
        return str(selector.get(LABEL_AGENT_VERSION, ""))

    def pods_of_version(self, version: str) -> tuple[Object, ...]:
        return tuple(pod for pod in self.agent_pods if version_of(pod) == version)

    def pods_of_attempt(self, attempt: int) -> tuple[Object, ...]:
        return tuple(pod for pod in self.trainer_pods if attempt_of(pod) == attempt)


def version_of(thing: Object) -> str:
    """Version of an agent server's Deployment or pod; empty for one made before versions ran side by side."""
    return labels(thing).get(LABEL_AGENT_VERSION, "")


def attempt_of(pod: Object) -> int:
    """Of its RayCluster's name, which nobody changes; by the label of a pod that no RayCluster owns."""
    number = ray_cluster_of(pod).rpartition("-a")[2]
    return int(number if number.isdecimal() else labels(pod).get(LABEL_ATTEMPT, "0"))


def controller_of(thing: Object) -> Mapping[str, Any] | None:
    """The owner reference of what made it."""
    return next((owner for owner in thing["metadata"].get("ownerReferences") or () if owner.get("controller")), None)


def ray_cluster_of(pod: Object) -> str:
    """Name of the RayCluster that owns the pod, empty when none does."""
    owner = controller_of(pod)
    return str(owner["name"]) if owner is not None and owner.get("kind") == "RayCluster" else ""


def is_head(pod: Object) -> bool:
    """By KubeRay's label, or by the supervisor that a head alone has."""
    kind = labels(pod).get(LABEL_NODE_TYPE)
    beside = pod.get("spec", {}).get("initContainers") or ()
    return kind == "head" if kind else any(container["name"] == SUPERVISOR for container in beside)


def labels(thing: Object) -> Mapping[str, str]:
    return thing["metadata"].get("labels") or {}


def annotations(thing: Object) -> Mapping[str, str]:
    return thing["metadata"].get("annotations") or {}


def name_of(thing: Object) -> str:
    return str(thing["metadata"]["name"])


def uid_of(thing: Object) -> str:
    return str(thing["metadata"]["uid"])


def is_terminating(thing: Object) -> bool:
    return "deletionTimestamp" in thing["metadata"]


def pod_phase(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def condition_of(thing: Object, kind: str) -> Mapping[str, Any] | None:
    """The condition `kind` in the object's own status."""
    listed = thing.get("status", {}).get("conditions") or []
    return next((condition for condition in listed if condition["type"] == kind), None)


def container_statuses(pod: Object) -> list[Mapping[str, Any]]:
    """Init containers first, as they start first."""
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def head_pod(pods: tuple[Object, ...]) -> Object | None:
    """The live Ray head among `pods`, None when it is gone, going or over."""
    for pod in pods:
        over = is_terminating(pod) or pod_phase(pod) in ("Failed", "Succeeded")
        if is_head(pod) and not over:
            return pod
    return None
