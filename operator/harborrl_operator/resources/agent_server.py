"""The agent server's Deployment; flags and environment are those of docs/contracts.md.

It mounts no job document: what it needs is in its flags, which no later edit changes under it.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from harborrl_operator.constants import (
    AGENT_PORT,
    GATEWAY_PORT,
    GROUP,
    LABEL_AGENT_VERSION,
    LABEL_JOB_UID,
    LABEL_ROLE,
    Role,
)
from harborrl_operator.names import AGENT_SERVER_ACCOUNT
from harborrl_operator.observed import Object
from harborrl_operator.resolve import MOUNTS, ResolvedJob
from harborrl_operator.resources.common import (
    UNDISTURBED,
    container_security,
    field_ref,
    merged,
    metadata,
    node_affinity,
    pod_identity,
    pod_security,
    resources,
    storage_mounts,
    storage_volumes,
    with_admin_secret,
)

ROLES = ("tasks", "trials")

ANNOTATION_DEPLOYMENT = f"{GROUP}/deployment"
"""On the pods: the name of their Deployment, which they may otherwise only guess."""

LEAVING_SECONDS = 60
"""Beyond the drain: the server cancels what still runs and leaves within 25 s (`--grace-period`); the rest is for a
busy node."""

VERSION_LENGTH = 8

START_CONCURRENCY = 16
"""The server's own default."""


def deployment(job: ResolvedJob, claims: Mapping[str, Object | None]) -> dict[str, Any]:
    """One replica of one version, never changed in place: another template is another Deployment beside this one."""
    pod = merged(_pod(job, claims), job.spec.agent_server.pod_overrides)
    version = _hash(pod)
    name = job.job.names.agent_deployment(version)
    labels = {LABEL_AGENT_VERSION: version}
    meta = metadata(job.job, name, Role.AGENT_SERVER)
    meta["labels"] |= labels
    selector = {LABEL_JOB_UID: job.job.uid, LABEL_ROLE: Role.AGENT_SERVER.value, **labels}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": {
            "replicas": 1,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {
                    "labels": job.job.names.labels(Role.AGENT_SERVER) | labels,
                    "annotations": {ANNOTATION_DEPLOYMENT: name, **UNDISTURBED},
                },
                "spec": pod,
            },
        },
    }


def _hash(pod: Mapping[str, Any]) -> str:
    return hashlib.sha256(_compact(pod).encode()).hexdigest()[:VERSION_LENGTH]


def _pod(job: ResolvedJob, claims: Mapping[str, Object | None]) -> dict[str, Any]:
    server = job.spec.agent_server
    pod = {
        "serviceAccountName": AGENT_SERVER_ACCOUNT,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": job.spec.rollout.agent_trial_timeout_seconds + LEAVING_SECONDS,
        "securityContext": pod_security(),
        "containers": [
            {
                "name": "agent-server",
                "image": job.agent_server_image,
                "imagePullPolicy": job.settings.image_pull_policy,
                "command": ["python", "-m", "harborrl_agent_server"],
                "args": _flags(job),
                "env": _environment(job),
                "ports": _ports(job),
                "resources": resources(server.resources),
                "securityContext": container_security(),
                "startupProbe": _probe("/health", periodSeconds=2, failureThreshold=90),
                "readinessProbe": _probe("/ready", periodSeconds=5, failureThreshold=3),
                # Killing a busy server costs every trial in it: only a server that is silent for minutes is restarted.
                "livenessProbe": _probe("/health", periodSeconds=15, failureThreshold=12),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [*storage_mounts(job, ROLES), {"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - a mount point in the pod
            }
        ],
        "volumes": [*storage_volumes(job, ROLES), {"name": "tmp", "emptyDir": {}}],
    }
    affinity = node_affinity(job, claims)
    return {**pod, "affinity": affinity} if affinity else pod


def _ports(job: ResolvedJob) -> list[dict[str, Any]]:
    """The gateway's is the pod's own, reached by its address: a trial's token is known to one server alone."""
    dashboard = job.spec.agent_server.dashboard_port
    wanted = {
        "http": AGENT_PORT,
        **({"gateway": GATEWAY_PORT} if job.needs_gateway else {}),
        **({"dashboard": dashboard} if dashboard else {}),
    }
    return [{"name": name, "containerPort": port} for name, port in wanted.items()]


def _flags(job: ResolvedJob) -> list[str]:
    server = job.spec.agent_server
    values = {
        "--host": "0.0.0.0",  # noqa: S104 - the pod's own network, reached through its Service
        "--port": AGENT_PORT,
        "--dashboard-port": server.dashboard_port,
        "--gateway-port": GATEWAY_PORT,
        "--max-concurrent": job.max_concurrent,
        "--agent-timeout": server.agent_timeout_seconds,
        "--trials-dir": f"{MOUNTS['trials']}/{job.job.names.run_path}/harbor",
        "--environment-start-timeout": server.environment_start_seconds,
        "--agent-setup-timeout": server.agent_setup_seconds,
        "--verifier-timeout": server.verifier_seconds,
        "--cleanup-timeout": server.cleanup_seconds,
        "--drain-period": job.spec.rollout.agent_trial_timeout_seconds,
        "--agent-name": server.agent_name,
        "--agent-kwargs": _compact(server.agent_kwargs),
        "--allowed-agents": ",".join(job.allowed_agents),
        "--sandbox": job.sandbox["backend"],
        "--sandbox-namespace": job.sandbox["namespace"],
        "--sandbox-image": job.settings.sandbox_image,
        "--sandbox-config": _compact(job.sandbox),
    }
    told_when_set = {
        "--reward-key": (server.reward_key, None),
        # Both engines name their session servers by the Service.
        "--allowed-model-hosts": (None if job.own_client else job.trainer_host, None),
        "--workers": (server.workers, 1),
        "--start-concurrency": (server.start_concurrency, START_CONCURRENCY),
    }
    values |= {flag: value for flag, (value, default) in told_when_set.items() if value != default}
    own = [("--agent", f"{name}={place}") for name, place in sorted(server.agents.items())]
    # The kubelet expands $(VAR) in arguments and reads $$ as $: a prompt or a secret's name is neither.
    return [word for flag, value in (*values.items(), *own) for word in (flag, str(value).replace("$", "$$"))]


def _environment(job: ResolvedJob) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [
        {"name": "HARBOR_TASKS_DIR", "value": _tasks_dir(job).replace("$", "$$")},
        {"name": "HARBORRL_JOB_NAMESPACE", "value": job.job.namespace},
        {"name": "HARBORRL_JOB_NAME", "value": job.job.name},
        {"name": "HARBORRL_JOB_UID", "value": job.job.uid},
        # By reference: the name holds the hash of the template.
        {"name": "HARBORRL_DEPLOYMENT", "valueFrom": field_ref(f"metadata.annotations['{ANNOTATION_DEPLOYMENT}']")},
        *pod_identity(),
        {"name": "POD_IP", "valueFrom": field_ref("status.podIP")},
    ]
    return with_admin_secret(job, out)


def _tasks_dir(job: ResolvedJob) -> str:
    tasks = job.document(attempt=0)["data"]["tasks"]
    return str(tasks["root"]) if tasks else MOUNTS["tasks"]


def _probe(path: str, **timing: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": AGENT_PORT}, "timeoutSeconds": 5, **timing}


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
