"""Builders of HarborRLJobs and of the children that the operator observes; a test shows only what differs."""

import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from harborrl_operator.draft import Plan
from harborrl_operator.models import HarborRLJob, JobStatus, Settings, parse_job
from harborrl_operator.observed import Observed, version_of
from harborrl_operator.plan import plan
from harborrl_operator.resolve import resolve
from harborrl_operator.resources import agent_server, preflight
from support import reached

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
UID = "5f0c2a9e-8a1d-4a53-9a36-0b6f1f8e7d10"
SETTINGS = Settings(miles_image="radixark/miles:dev-202604201238")
"""Of an installation that has both engines."""

QUICKSTART_SPEC: dict[str, Any] = {
    "model": {"path": "SmolLM2-135M-Instruct"},
    "data": {"tasks": {}},
    "trainer": {
        "engine": "native",
        "nodes": 2,
        "allowPartialStart": True,
        "maxSeqLen": 2048,
        "config": {
            "numRollout": 3,
            "rolloutBatchSize": 2,
            "nSamplesPerPrompt": 4,
            "globalBatchSize": 8,
            "saveInterval": 1,
            "lr": 3e-05,
            "noSaveOptim": False,
            "rolloutTemperature": 0.8,
            "rolloutMaxResponseLen": 64,
            "enableThinking": False,
        },
    },
    "rollout": {"agentTrialTimeoutSeconds": 900},
    "agentServer": {
        "agentKwargs": {"maxTurns": 3},
        "environmentStartSeconds": 120,
        "agentSetupSeconds": 60,
        "agentTimeoutSeconds": 300,
        "verifierSeconds": 120,
        "cleanupSeconds": 60,
    },
    "checkpoint": {"graceSeconds": 30},
}

BROUGHT: dict[str, Any] = {"agentServer.url": "http://agents.team.svc:30000", "agentServer.agentKwargs": {}}
"""Changes that make QUICKSTART_SPEC a job with a server of the user's own."""

MINIMAL_SPEC: dict[str, Any] = {"model": {"path": "GLM-4.7-Flash"}, "data": {"jsonl": "train.jsonl"}}

DESIGN_SPEC: dict[str, Any] = {
    "suspend": False,
    "queueName": "h200",
    "model": {"path": "GLM-4.7-Flash", "refLoad": "GLM-4.7-Flash_torch_dist", "type": "glm4.7-flash"},
    "data": {"jsonl": "tb2_train.jsonl"},
    "eval": {"jsonl": "tb2_eval.jsonl", "interval": 20, "samplesPerPrompt": 1},
    "trainer": {
        "engine": "miles",
        "preset": "glm47-flash-sync",
        "mode": "sync",
        "lora": {"rank": 16, "alpha": 32, "targetModules": ["linear_qkv", "linear_proj"]},
        "parallelism": {"tp": 4, "ep": 8},
        "image": "radixark/miles:dev-202604201238",
        "nodes": 1,
        "gpusPerNode": 8,
        "gpuProduct": "NVIDIA-H200",
        "config": {
            "rolloutBatchSize": 4,
            "nSamplesPerPrompt": 8,
            "globalBatchSize": 32,
            "numRollout": 200,
            "saveInterval": 20,
        },
        "maxSeqLen": 65536,
        "recipeArgs": "",
        "extraArgs": "",
        "customConfigYaml": "",
        "ports": {"session": 30000, "sessionCount": 1, "router": 31000},
        "env": [{"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "key"}}}],
        "startDeadlineSeconds": 1800,
    },
    "rollout": {"agentTrialTimeoutSeconds": 7200, "onAgentTimeout": "grade"},
    "agentServer": {
        "maxConcurrent": 32,
        "agentTimeoutSeconds": 5400,
        "environmentStartSeconds": 600,
        "agentSetupSeconds": 360,
        "verifierSeconds": 600,
        "cleanupSeconds": 60,
        "agentName": "bash",
        "dashboardPort": 0,
        "adminSecretRef": {"name": "harbor-admin"},
        "sandbox": {
            "backend": "kubernetes",
            "namespace": "harborrl-sandboxes",
            "images": {"map": {"hello": "registry.example/hello:1"}, "template": "registry.example/{task}:1"},
            "limits": {"limits": {"cpu": 4, "memory": "8Gi"}},
            "defaults": {"requests": {"cpu": "500m", "memory": "1Gi"}},
            "nodeSelector": {"pool": "sandboxes"},
            "tolerations": [{"key": "sandbox", "operator": "Exists"}],
            "timeoutSeconds": 7500,
            "idleTimeoutSeconds": 3600,
        },
    },
    "storage": {role: {"pvc": role} for role in ("models", "tasks", "checkpoints", "traces", "trials")},
    "checkpoint": {"keep": 3, "graceSeconds": 120, "suspendWaitSeconds": 3600},
    "progress": {"stallFactor": 3, "onStall": "Report"},
    "retries": {"maxAttempts": 3},
    "activeDeadlineSeconds": 864000,
    "ttlSecondsAfterFinished": 86400,
}


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`base` with `changes` at dotted paths: {"trainer.nodes": 2}."""
    out = copy.deepcopy(base)
    for path, value in changes.items():
        *parents, last = path.split(".")
        part = out
        for parent in parents:
            part = part.setdefault(parent, {})
        part[last] = value
    return out


def job(
    changes: dict[str, Any] | None = None,
    *,
    base: dict[str, Any] = QUICKSTART_SPEC,
    status: JobStatus | None = None,
    generation: int = 1,
    name: str = "quickstart",
) -> HarborRLJob:
    return parse_job(
        {
            "metadata": {"namespace": "research", "name": name, "uid": UID, "generation": generation},
            "spec": merged(base, changes or {}),
            "status": status.model_dump(by_alias=True, mode="json") if status else {},
        }
    )


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def claim(name: str = "harborrl-data", mode: str = "ReadWriteMany") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"accessModes": [mode]}}


SANDBOXES = {"metadata": {"name": "harborrl-sandboxes", "labels": {"harborrl.dev/sandboxes": "true"}}}


def world(*, deployment: Any = None, serving: Any = None, **changes: Any) -> Observed:
    """A namespace in which the claim and the sandbox namespace exist, and what `changes` add.

    `deployment` is the only agent server; the Service selects it, or the version `serving`.
    """
    if deployment is not None:
        changes["agent_servers"] = {version_of(deployment): deployment}
        serving = version_of(deployment) if serving is None else serving
    if serving is not None:
        changes["agent_service"] = agent_service(serving)
    return Observed(**{"claims": {"harborrl-data": claim()}, "sandbox_namespace": SANDBOXES, **changes})


def agent_service(version: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "quickstart-agent", "namespace": "research", "uid": "s-1"},
        "spec": {"selector": {"harborrl.dev/agent-version": version}},
    }


def agent_version(of: HarborRLJob, mode: str = "ReadWriteMany") -> str:
    """Of the Deployment that the job as it is wants."""
    wanted = agent_server.deployment(resolve(of, SETTINGS), {"harborrl-data": claim(mode=mode)})
    return version_of(wanted)


def deployment(
    of: HarborRLJob | None = None, *, ready: bool = True, conditions: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The agent server that `of` wants, by default the quickstart job."""
    version = agent_version(of or job())
    labels = {"harborrl.dev/agent-version": version}
    name = f"quickstart-agent-{version}"
    return {
        "metadata": {"name": name, "namespace": "research", "uid": f"d-{version}", "generation": 1, "labels": labels},
        "status": {"observedGeneration": 1, "readyReplicas": int(ready), "conditions": conditions or []},
    }


SERVER = f"Deployment/quickstart-agent-{agent_version(job())}"
"""The quickstart job's."""


def started(applied: dict[str, Any]) -> dict[str, Any]:
    """A Deployment that was applied, as its controller leaves it once it is ready."""
    meta = {**applied["metadata"], "uid": "d-1", "generation": 1}
    return {"metadata": meta, "status": {"observedGeneration": 1, "readyReplicas": 1}}


def agent_pod(of: HarborRLJob, *, terminating: bool = False, **status: Any) -> dict[str, Any]:
    """A pod of the agent server that `of` wants."""
    version = agent_version(of)
    thing = pod(f"quickstart-agent-{version}-x", **status)
    thing["metadata"]["labels"] = {"harborrl.dev/agent-version": version}
    if terminating:
        thing["metadata"]["deletionTimestamp"] = ago(1)
    return thing


def pod(name: str = "p", *, age: float = 10, phase: str = "Pending", **status: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "research", "uid": f"uid-{name}", "creationTimestamp": ago(age), "labels": {}}
    return {"metadata": meta, "spec": {}, "status": {"phase": phase, **status}}


def preflight_pod(
    of: HarborRLJob,
    *,
    attempt: int = 1,
    exit_code: int | None = None,
    message: str = "",
    ended: float = 5,
    uid: str = "pf-1",
) -> dict[str, Any]:
    """Running, or ended with `exit_code` and termination message `ended` seconds ago."""
    thing = pod("quickstart-preflight", phase="Running")
    thing["metadata"]["uid"] = uid
    thing["metadata"]["annotations"] = {"harborrl.dev/config-hash": preflight.key(resolve(of, SETTINGS), attempt)}
    if exit_code is not None:
        state = {"terminated": {"exitCode": exit_code, "message": message, "finishedAt": ago(ended)}}
        thing["status"] = {
            "phase": "Failed" if exit_code else "Succeeded",
            "containerStatuses": [{"name": "preflight", "image": "trainer", "state": state}],
        }
    return thing


PASSED = json.dumps({"schemaVersion": 1, "ok": True, "findings": []})


def ray_cluster(
    of: HarborRLJob, attempt: int = 1, *, suspend: bool | None = None, age: float = 10, **status: Any
) -> dict[str, Any]:
    name = f"quickstart-a{attempt}"
    spec = {} if suspend is None else {"suspend": suspend}
    made = resolve(of, SETTINGS)
    hashed = {"harborrl.dev/config-hash": made.attempt_hash, "harborrl.dev/shared-hash": made.shared_hash}
    meta = {"name": name, "namespace": "research", "uid": f"rc-{attempt}", "annotations": hashed}
    return {"metadata": meta | {"creationTimestamp": ago(age)}, "spec": spec, "status": status}


def trainer_pod(
    role: str = "head",
    *,
    attempt: int = 1,
    phase: str = "Running",
    ready: bool = True,
    terminating: bool = False,
    **status: Any,
) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    thing = pod(f"quickstart-a{attempt}-{role}", phase=phase, conditions=conditions, **status)
    thing["metadata"]["labels"] = {"ray.io/node-type": role, "harborrl.dev/attempt": str(attempt)}
    thing["spec"] = {"nodeName": "node-1"}
    if terminating:
        thing["metadata"]["deletionTimestamp"] = ago(1)
    return thing


def progress(
    state: str = "RUNNING",
    changes: dict[str, Any] | None = None,
    *,
    attempt: int = 1,
    incarnation: int = 1,
    message: str = "",
    failure: str | None = None,
) -> str:
    """The supervisor's report, with `changes` at dotted paths."""
    document: dict[str, Any] = {
        "schemaVersion": 1,
        "uid": UID,
        "attempt": attempt,
        "incarnation": incarnation,
        "sequence": 7,
        "driver": {
            "submissionId": f"quickstart-a{attempt}-i{incarnation}",
            "state": state,
            "message": message,
            "failureClass": failure,
            "cause": None,
            "startedAt": ago(0),
        },
        "rollout": {"collected": 2, "trained": 1, "total": 3, "rewardMean": 0.375, "lostRollouts": 1},
        "checkpoint": {"rolloutId": 0, "path": "research/quickstart-5f0c2a9e/a1/i1/checkpoints/iter_0000000"},
        "agentServer": {"capacity": 8, "inFlight": 8},
        "observedAt": ago(1),
    }
    return json.dumps(merged(document, changes or {}))


def running_world(of: HarborRLJob, attempt: int = 1, **changes: Any) -> Observed:
    """Agent server ready, cluster there, both pods ready."""
    defaults: dict[str, Any] = {
        "deployment": deployment(of),
        "ray_clusters": {f"quickstart-a{attempt}": ray_cluster(of, attempt)},
        "trainer_pods": (trainer_pod("head", attempt=attempt), trainer_pod("worker", attempt=attempt)),
        "progress_exists": True,
    }
    return world(**(defaults | changes))


def decide(of: HarborRLJob, seen: Observed, *, after: float = 0, settings: Settings = SETTINGS) -> Plan:
    decided = plan(of, seen, settings, NOW + timedelta(seconds=after))
    reached.note_status(decided.status)
    return decided


def then(of: HarborRLJob, decided: Plan, **changes: Any) -> HarborRLJob:
    """The same job with the status that `decided` wrote."""
    spec = of.spec.model_copy(update=changes)
    return HarborRLJob(of.namespace, of.name, of.uid, of.generation, spec, decided.status)


def condition(decided: Plan, kind: str) -> tuple[str, str]:
    """Status and reason."""
    found = next(c for c in decided.status.conditions if c.type == kind)
    return found.status, found.reason


def message(decided: Plan, kind: str) -> str:
    return next(c for c in decided.status.conditions if c.type == kind).message


def applied(decided: Plan) -> list[str]:
    return [f"{thing['kind']}/{thing['metadata']['name']}" for thing in decided.apply]


def applied_beside_policies(decided: Plan) -> list[str]:
    """The network is always the spec's."""
    return [name for name in applied(decided) if not name.startswith("NetworkPolicy/")]


def deleted(decided: Plan) -> list[str]:
    return [f"{reference.kind}/{reference.name}" for reference in decided.delete]


def text(manifest: dict[str, Any]) -> str:
    """As a file for kubectl."""
    return json.dumps(manifest)
