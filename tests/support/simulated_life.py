"""A job's whole life with the part of kubelet, KubeRay and the supervisor played by the test, on a clock of its own.

Deterministic: the same steps give the same objects and the same status, so that two lives can be compared.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from harborrl_operator.clock import from_text, to_text
from harborrl_operator.cluster import Cluster, _path
from harborrl_operator.constants import LABEL_AGENT_VERSION
from harborrl_operator.names import JobNames
from harborrl_operator.transport import Request
from support import hrl

JOB = "sweep"
SPEC = {"retries": {"maxAttempts": 2}, "ttlSecondsAfterFinished": 15}
_HASH = re.compile(r'"[0-9a-f]{12,64}(?=["-])')
"""Of the job document, which holds namespace and uid."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
KINDS = (
    "ConfigMap",
    "Deployment",
    "NetworkPolicy",
    "Pod",
    "PodDisruptionBudget",
    "RayCluster",
    "Role",
    "RoleBinding",
    "Service",
    "ServiceAccount",
)


@dataclass
class Life:
    """One job in a namespace of its own; `cluster` is the administrator's.

    Its clock stays within a minute of the API server's: what is judged by an object's age must not look old.
    """

    cluster: Cluster
    namespace: str
    begun: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))
    passed: float = 0.0
    uid: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Of the spec, by dotted path."""

    def now(self) -> datetime:
        return self.begun + timedelta(seconds=self.passed)

    async def begin(self) -> None:
        if await self.cluster.get("Namespace", None, self.namespace) is None:
            await self.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        meta = {"name": hrl.SETTINGS.default_claim, "namespace": self.namespace}
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
        await self.cluster.create(claim)
        await self.submit()

    async def submit(self) -> None:
        job = {
            "apiVersion": "harborrl.dev/v1alpha1",
            "kind": "HarborRLJob",
            "metadata": {"name": JOB, "namespace": self.namespace},
            "spec": hrl.merged(hrl.QUICKSTART_SPEC, {**SPEC, **self.changes}),
        }
        self.uid = (await self.cluster.create(job))["metadata"]["uid"]

    async def status(self) -> dict[str, Any]:
        job = await self.cluster.get("HarborRLJob", self.namespace, JOB)
        return (job or {}).get("status") or {}

    async def is_there(self, kind: str, name: str) -> bool:
        return await self.cluster.get(kind, self.namespace, name) is not None

    async def agent_server(self) -> dict[str, Any] | None:
        """Its Deployment, whose name holds its version."""
        found = await self.cluster.find("Deployment", self.namespace)
        return found[0] if found else None

    async def patch(self, kind: str, name: str, body: Mapping[str, Any], subresource: str = "") -> None:
        path = _path(kind, self.namespace, name) + (f"/{subresource}" if subresource else "")
        request = Request("patch", kind, path, (), body, "application/merge-patch+json")
        await self.cluster._ask(request, f"patch {kind} {name}")

    async def image(self) -> dict[str, Any]:
        """Everything that there is, without what differs between two lives."""
        things: dict[str, Any] = {"status": await self.status()}
        for kind in KINDS:
            for thing in await self.cluster.find(kind, self.namespace):
                kept = ("labels", "annotations", "ownerReferences")
                meta = {key: thing["metadata"][key] for key in kept if key in thing["metadata"]}
                rest = {key: value for key, value in thing.items() if key not in ("metadata", "status")}
                things[f"{kind}/{thing['metadata']['name']}"] = {"metadata": meta, **rest}
        text = _HASH.sub('"HASH', json.dumps(things, sort_keys=True))
        for address in _addresses(things):
            text = text.replace(address, "IP")
        for version in _versions(things):
            text = text.replace(version, "VERSION")
        return dict(json.loads(self.normal(text)))

    def normal(self, text: str) -> str:
        """Without the names and moments of this very life."""
        for found, word in ((self.uid, "UID"), (self.uid[:8], "UID8"), (self.namespace, "NAMESPACE")):
            text = text.replace(found, word)
        return _MOMENT.sub(self._offset, text)

    def _offset(self, moment: re.Match[str]) -> str:
        passed = (from_text(moment[0]) - self.begun).total_seconds()
        return f"T+{passed:.0f}" if passed > -3600 else "LONG AGO"


def _addresses(things: Mapping[str, Any]) -> list[str]:
    services = [thing for name, thing in things.items() if name.startswith("Service/")]
    addresses = {ip for service in services for ip in service["spec"].get("clusterIPs", ()) if ip != "None"}
    return sorted(addresses, key=len, reverse=True)


def _versions(things: Mapping[str, Any]) -> list[str]:
    """Of agent servers: a hash over what holds the namespace. A Service outlives the server that it selects."""
    chosen = [thing["spec"].get("selector") or {} for name, thing in things.items() if name.startswith("Service/")]
    return [selector[LABEL_AGENT_VERSION] for selector in chosen if LABEL_AGENT_VERSION in selector]


Act = Callable[[Life], Awaitable[None]]
Reached = Callable[[Life], Awaitable[bool]]


@dataclass(frozen=True)
class Stage:
    """What the world does, and how far the operator must come before the world goes on."""

    name: str
    act: Act
    reached: Reached


async def serve(life: Life) -> None:
    """Kubelet and the Deployment controller: the agent server is ready."""
    found = await life.agent_server()
    assert found is not None
    ready = {"observedGeneration": found["metadata"]["generation"], "replicas": 1, "readyReplicas": 1}
    await life.patch("Deployment", found["metadata"]["name"], {"status": ready}, "status")


async def pass_preflight(life: Life) -> None:
    ended = {"exitCode": 0, "message": hrl.PASSED, "finishedAt": to_text(life.now())}
    container = {"name": "preflight", "state": {"terminated": ended}, "ready": False, "restartCount": 0}
    status = {"phase": "Succeeded", "containerStatuses": [container | {"image": "i", "imageID": "i"}]}
    await life.patch("Pod", f"{JOB}-preflight", {"status": status}, "status")


def pod_name(role: str, attempt: int, incarnation: int = 1) -> str:
    return f"{JOB}-a{attempt}-{role}" + (f"-{incarnation}" if incarnation > 1 else "")


async def start_pod(life: Life, role: str, attempt: int, incarnation: int = 1) -> None:
    """KubeRay and kubelet: a `head` or a `worker` that is ready."""
    names = JobNames(life.namespace, JOB, life.uid)
    labels = {
        **{key: value for key, value in names.labels().items() if "managed-by" not in key},
        "harborrl.dev/role": "trainer",
        "harborrl.dev/attempt": str(attempt),
        "ray.io/node-type": role,
    }
    name = pod_name(role, attempt, incarnation)
    meta = {"name": name, "namespace": life.namespace, "labels": labels}
    spec: dict[str, Any] = {"containers": [{"name": "ray", "image": "i"}], "serviceAccountName": "harborrl-trainer"}
    spec |= {"automountServiceAccountToken": False, "nodeName": "", "terminationGracePeriodSeconds": 0}
    await life.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": to_text(life.now())}
    await life.patch("Pod", name, {"status": {"phase": "Running", "conditions": [ready]}}, "status")


def start_head(attempt: int, incarnation: int = 1) -> Act:
    async def act(life: Life) -> None:
        """With the supervisor, whose driver runs."""
        await start_pod(life, "head", attempt, incarnation)
        await report(life, attempt, "RUNNING", incarnation=incarnation)

    return act


async def report(life: Life, attempt: int, state: str, failure: str | None = None, *, incarnation: int = 1) -> None:
    told = {"uid": life.uid, "observedAt": to_text(life.now()), "driver.startedAt": to_text(life.begun)}
    message = "a node went away" if failure else ""
    document = hrl.progress(state, told, attempt=attempt, incarnation=incarnation, failure=failure, message=message)
    await life.patch("ConfigMap", f"{JOB}-progress", {"data": {"progress": document}})


async def remove_pod(life: Life, role: str, attempt: int, incarnation: int = 1) -> None:
    name = pod_name(role, attempt, incarnation)
    request = Request("delete", "Pod", _path("Pod", life.namespace, name), (), {"gracePeriodSeconds": 0})
    await life.cluster._ask(request, "delete Pod")


def end(attempt: int, state: str, failure: str | None = None, *, incarnation: int = 1) -> Act:
    async def act(life: Life) -> None:
        """The supervisor's last word, and its pod."""
        await report(life, attempt, state, failure, incarnation=incarnation)
        await remove_pod(life, "head", attempt, incarnation)

    return act


async def nothing(_: Life) -> None:
    pass


def passes(seconds: float) -> Act:
    async def act(life: Life) -> None:
        life.passed += seconds

    return act


def in_phase(phase: str, kind: str = "", name: str = "", attempt: int = 1) -> Reached:
    async def reached(life: Life) -> bool:
        status = await life.status()
        is_there = status.get("phase") == phase and status.get("attempt") == attempt
        return is_there and (not kind or await life.is_there(kind, name))

    return reached


async def is_gone(life: Life) -> bool:
    return not await life.is_there("HarborRLJob", JOB)


STAGES = (
    Stage("created", nothing, in_phase("StartingAgentServer", "Service", f"{JOB}-agent")),
    Stage("agent server ready", serve, in_phase("Preflight", "Pod", f"{JOB}-preflight")),
    Stage("preflight passed", pass_preflight, in_phase("StartingTrainer", "RayCluster", f"{JOB}-a1")),
    Stage("head runs", start_head(1), in_phase("Running")),
    Stage("a node is lost", end(1, "FAILED", "infrastructure"), in_phase("StartingTrainer", attempt=2)),
    Stage("the pause is over", passes(20), in_phase("Preflight", "Pod", f"{JOB}-preflight", attempt=2)),
    Stage("second preflight passed", pass_preflight, in_phase("StartingTrainer", "RayCluster", f"{JOB}-a2", attempt=2)),
    Stage("second head runs", start_head(2), in_phase("Running", attempt=2)),
    Stage("all is trained", end(2, "SUCCEEDED"), in_phase("Succeeded", attempt=2)),
    Stage("the time to live is over", passes(20), is_gone),
)
