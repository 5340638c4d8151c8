"""The RayCluster of one attempt, for KubeRay 1.6: applied once and never again (Kueue owns parts of it afterwards)."""

from collections.abc import Mapping
from typing import Any

from harborrl_operator.constants import (
    ANNOTATION_CONFIG,
    ANNOTATION_NO_HEAD_RESTART,
    ANNOTATION_SHARED,
    DASHBOARD_AGENT_PORT,
    DASHBOARD_PORT,
    GCS_PORT,
    GPU_RESOURCE,
    LABEL_QUEUE,
    LABEL_WORKLOAD_PRIORITY,
    RUN_DIR,
    Role,
)
from harborrl_operator.models.spec import ROLES, JobSpec
from harborrl_operator.models.trainer import Resources
from harborrl_operator.observed import SUPERVISOR, Object
from harborrl_operator.quantities import whole_cpus
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.resources import scratch
from harborrl_operator.resources.common import (
    SMALL_REQUESTS,
    UNDISTURBED,
    config_mount,
    config_volume,
    container_security,
    merged,
    metadata,
    pod_security,
    resources,
    storage_mounts,
    storage_volumes,
    trainer_account,
    trainer_environment,
    with_admin_secret,
)
from harborrl_operator.resources.interconnect import capabilities, devices, environment, network_annotations
from harborrl_operator.resources.miles_code import is_needed, supervisor_environment, with_code
from harborrl_operator.resources.placement import placement, topology_annotations

_TOKEN_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a directory, no secret

RELEASE_MARGIN_SECONDS = 30
"""Grace beyond the checkpoint's, in which the supervisor still reports."""

WORKER_MARGIN_SECONDS = 15
"""Grace of a worker beyond its wait for the head, in which Ray itself ends."""

NATIVE_WORKER_SECONDS = 30
"""Longest that a worker of the native engine waits for its head. KubeRay's own init container does not heed SIGTERM, so
the grace period is also what deleting a job costs whose workers have not started: keep it well below a minute."""

CPU_SLOTS = 8
"""Ray's logical CPUs of a pod that states none: actors must be placeable whatever the node has."""

CPU_SHARED_MEMORY = "1Gi"
GPU_SHARED_MEMORY = "64Gi"
CPU_OBJECT_STORE_BYTES = 512 * 1024 * 1024
"""Without it Ray sizes its store by the node's memory, which other pods share."""


def ray_cluster(job: ResolvedJob, attempt: int, claims: Mapping[str, Object | None]) -> dict[str, Any]:
    meta = metadata(job.job, job.job.names.ray_cluster(attempt), Role.TRAINER, attempt)
    meta["annotations"] = {ANNOTATION_CONFIG: job.attempt_hash, ANNOTATION_SHARED: job.shared_hash}
    meta["labels"] |= queue_labels(job.spec)
    if not job.spec.queue_name:
        # Without it KubeRay puts another head in the place of a lost one (seen on 1.6.2). In a queue that is wanted: it
        # keeps the quota.
        meta["annotations"][ANNOTATION_NO_HEAD_RESTART] = "true"
    if job.settings.gang_scheduler:
        meta["labels"]["ray.io/gang-scheduling-enabled"] = "true"
    spec: dict[str, Any] = {
        "headGroupSpec": {
            "rayStartParams": {"dashboard-host": "0.0.0.0", **_start_params(job)},  # noqa: S104 - the pod's own network
            "template": _template(job, attempt, _head(job, attempt), claims),
        },
    }
    workers = job.spec.trainer.nodes - 1
    if workers:
        spec["workerGroupSpecs"] = [
            {
                "groupName": "workers",
                "replicas": workers,
                "minReplicas": workers,
                "maxReplicas": workers,
                "rayStartParams": _start_params(job),
                "template": _template(job, attempt, _worker(job, attempt), claims),
            }
        ]
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta, "spec": spec}


def queue_labels(spec: JobSpec) -> dict[str, str]:
    """What Kueue goes by; on the RayCluster alone, never on another object of the job."""
    if not spec.queue_name:
        return {}
    priority = spec.workload_priority_class
    return {LABEL_QUEUE: spec.queue_name} | ({LABEL_WORKLOAD_PRIORITY: priority} if priority else {})


def _start_params(job: ResolvedJob) -> dict[str, str]:
    wanted = job.spec.trainer.resources
    params = {"num-cpus": str(whole_cpus(wanted) or CPU_SLOTS)}
    if job.gpus_per_node:
        params["num-gpus"] = str(job.gpus_per_node)
    else:
        params["object-store-memory"] = str(CPU_OBJECT_STORE_BYTES)
    return params


def _template(
    job: ResolvedJob, attempt: int, pod: dict[str, Any], claims: Mapping[str, Object | None]
) -> dict[str, Any]:
    annotations = UNDISTURBED | topology_annotations(job) | network_annotations(job)
    return {
        "metadata": {"labels": job.job.names.labels(Role.TRAINER, attempt), "annotations": annotations},
        "spec": merged(pod | placement(job, claims), job.spec.trainer.pod_overrides),
    }


def _pod(job: ResolvedJob, ray: dict[str, Any], volumes: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        # A container restarted in place would be an empty Ray head in the same pod.
        "restartPolicy": "Never",
        "serviceAccountName": trainer_account(job.spec),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": job.spec.checkpoint.grace_seconds + RELEASE_MARGIN_SECONDS,
        "securityContext": pod_security(as_our_user=job.spec.trainer.engine == "native"),
        "containers": [ray],
        "volumes": [
            config_volume(job),
            *storage_volumes(job, ROLES),
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _shared_memory(job)}},
            *scratch.volumes(job),
            *volumes,
        ],
    }


def _shared_memory(job: ResolvedJob) -> str | int:
    trainer = job.spec.trainer
    limit = trainer.resources.limits.get("memory") if trainer.resources else None
    return trainer.shared_memory or limit or (GPU_SHARED_MEMORY if job.gpus_per_node else CPU_SHARED_MEMORY)


def _ray_container(job: ResolvedJob, attempt: int, name: str) -> dict[str, Any]:
    gpus = {GPU_RESOURCE: job.gpus_per_node} if job.gpus_per_node else {}
    return {
        "name": name,
        "image": job.trainer_image,
        "imagePullPolicy": job.settings.image_pull_policy,
        "env": [
            *environment(job),
            *trainer_environment(job, attempt),
            {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"},
        ],
        "resources": resources(job.spec.trainer.resources, {**gpus, **devices(job)}),
        "securityContext": container_security(capabilities(job)),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            config_mount(),
            *storage_mounts(job, ROLES),
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - a mount point in the pod
            *scratch.mounts(job),
        ],
    }


def _head(job: ResolvedJob, attempt: int) -> dict[str, Any]:
    ports = job.spec.trainer.ports
    sessions = range(ports.session, ports.session + ports.session_count)
    ray = _ray_container(job, attempt, "ray-head")
    ray["ports"] = [
        {"name": "gcs", "containerPort": GCS_PORT},
        {"name": "dashboard", "containerPort": DASHBOARD_PORT},
        *({"name": f"session-{index}", "containerPort": port} for index, port in enumerate(sessions)),
        {"name": "router", "containerPort": ports.router},
    ]
    ray["env"] = with_admin_secret(job, ray["env"])
    ray["lifecycle"] = _wait_for_release()
    ray["readinessProbe"] = _http_probe(DASHBOARD_PORT, "/api/gcs_healthz")
    ray["livenessProbe"] = _tcp_probe(GCS_PORT)
    ray["volumeMounts"].append({"name": "run", "mountPath": RUN_DIR})
    pod = _pod(job, ray, [{"name": "run", "emptyDir": {}}, _token_volume()])
    pod["initContainers"] = [_supervisor(job, attempt)]
    return with_code(job, pod, _beside(job.spec.trainer.resources))


def _worker(job: ResolvedJob, attempt: int) -> dict[str, Any]:
    ray = _ray_container(job, attempt, "ray-worker")
    wait = job.spec.checkpoint.grace_seconds
    if job.spec.trainer.engine == "native":
        wait = min(wait, NATIVE_WORKER_SECONDS)
    ray["lifecycle"] = _wait_for_head_to_end(wait)
    ray["readinessProbe"] = _http_probe(DASHBOARD_AGENT_PORT, "/api/local_raylet_healthz")
    ray["livenessProbe"] = _tcp_probe(DASHBOARD_AGENT_PORT)
    pod = _pod(job, ray, []) | {"terminationGracePeriodSeconds": wait + WORKER_MARGIN_SECONDS}
    return with_code(job, pod, _beside(job.spec.trainer.resources))


def _supervisor(job: ResolvedJob, attempt: int) -> dict[str, Any]:
    """A native sidecar: restarted when it dies, and told to stop after the Ray container has ended."""
    return {
        "name": SUPERVISOR,
        "restartPolicy": "Always",
        "image": job.settings.trainer_image if is_needed(job) else job.trainer_image,
        "imagePullPolicy": job.settings.image_pull_policy,
        "command": ["python", "-m", "harborrl_trainer", "supervise"],
        "env": with_admin_secret(job, [*trainer_environment(job, attempt), *supervisor_environment(job)]),
        "resources": _beside(job.spec.trainer.resources),
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            config_mount(),
            *storage_mounts(job, ROLES),
            {"name": "run", "mountPath": RUN_DIR},
            {"name": "token", "mountPath": _TOKEN_DIR, "readOnly": True},
        ],
    }


def _beside(wanted: Resources | None) -> dict[str, Any]:
    """Requests only of what the job states too: Kueue refuses a pod that asks for what its queue does not cover."""
    stated = {*wanted.requests, *wanted.limits} if wanted else set()
    requests = {name: amount for name, amount in SMALL_REQUESTS.items() if name in stated}
    return {"requests": requests} if requests else {}


def _token_volume() -> dict[str, Any]:
    """What the kubelet would mount into every container, for the supervisor alone."""
    return {
        "name": "token",
        "projected": {
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
            ]
        },
    }


def _wait_for_release() -> dict[str, Any]:
    """KubeRay ends head and workers at once: Ray stays until the supervisor has saved, bounded by the grace period."""
    script = f"touch {RUN_DIR}/terminating; until [ -e {RUN_DIR}/released ]; do sleep 0.2; done"
    return {"preStop": {"exec": {"command": ["/bin/sh", "-c", script]}}}


def _wait_for_head_to_end(limit: int) -> dict[str, Any]:
    """A worker holds its shard until the head is gone: KubeRay's $FQ_RAY_IP stops answering then."""
    script = (
        f"for _ in $(seq {limit}); do"
        f' timeout 2 bash -c "exec 3<>/dev/tcp/$FQ_RAY_IP/{GCS_PORT}" 2>/dev/null || exit 0; sleep 1; done'
    )
    return {"preStop": {"exec": {"command": ["/bin/bash", "-c", script]}}}


def _http_probe(port: int, path: str) -> dict[str, Any]:
    """Our own probes, since those that KubeRay adds call wget, which an image need not have."""
    return {"httpGet": {"port": port, "path": path}, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 12}


def _tcp_probe(port: int) -> dict[str, Any]:
    """Patient: a pod that its probe kills costs the attempt, and a training step may starve Ray for minutes."""
    return {"tcpSocket": {"port": port}, "periodSeconds": 30, "timeoutSeconds": 10, "failureThreshold": 20}
