"""What several children share: metadata, volumes, environment, security."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from harborrl_operator.constants import (
    API_VERSION,
    JOB_FILE,
    KIND,
    LABEL_JOB_UID,
    UID,
    Role,
)
from harborrl_operator.models import HarborRLJob
from harborrl_operator.models.spec import JobSpec
from harborrl_operator.models.trainer import Resources
from harborrl_operator.names import TRAINER_ACCOUNT
from harborrl_operator.observed import Object
from harborrl_operator.resolve import MOUNTS, ResolvedJob
from harborrl_operator.storage_checks import READ_ONLY_ROLES, is_node_bound

UNDISTURBED = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
"""Annotations of pods that no autoscaler may move to save a node: each is hours of work in memory."""


def metadata(job: HarborRLJob, name: str, role: Role | None = None, attempt: int | None = None) -> dict[str, Any]:
    """Metadata of a child of the job, with the controller reference by which the garbage collector removes it."""
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": job.names.labels(role, attempt),
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": job.name,
                "uid": job.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def trainer_account(spec: JobSpec) -> str:
    """ServiceAccount of trainer and preflight pods."""
    return spec.trainer.service_account_name or TRAINER_ACCOUNT


def storage_volumes(job: ResolvedJob, roles: tuple[str, ...]) -> list[dict[str, Any]]:
    """One volume a claim, however many roles share it."""
    claims = dict.fromkeys(job.volumes[role].pvc for role in roles)
    return [{"name": _volume_name(claim), "persistentVolumeClaim": {"claimName": claim}} for claim in claims]


def storage_mounts(job: ResolvedJob, roles: tuple[str, ...]) -> list[dict[str, Any]]:
    mounts = []
    for role in roles:
        volume = job.volumes[role]
        mount: dict[str, Any] = {"name": _volume_name(volume.pvc), "mountPath": MOUNTS[role]}
        if volume.sub_path:
            mount["subPath"] = volume.sub_path
        if role in READ_ONLY_ROLES:
            mount["readOnly"] = True
        mounts.append(mount)
    return mounts


def _volume_name(claim: str) -> str:
    """Claim names are DNS labels; the prefix keeps them apart from our volumes, a hash long ones from each other."""
    name = f"c-{claim}"
    return name if len(name) <= 63 else f"{name[:54]}-{hashlib.sha256(claim.encode()).hexdigest()[:8]}"


def config_volume(job: ResolvedJob) -> dict[str, Any]:
    return {"name": "job", "configMap": {"name": job.job.names.config}}


def config_mount() -> dict[str, Any]:
    return {"name": "job", "mountPath": JOB_FILE.rsplit("/", 1)[0], "readOnly": True}


def pod_identity() -> list[dict[str, Any]]:
    """POD_NAME and POD_NAMESPACE by the downward API."""
    return [
        {"name": name, "valueFrom": field_ref(path)}
        for name, path in (("POD_NAME", "metadata.name"), ("POD_NAMESPACE", "metadata.namespace"))
    ]


def field_ref(path: str) -> dict[str, Any]:
    return {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}


def trainer_environment(job: ResolvedJob, attempt: int) -> list[dict[str, Any]]:
    """Environment of preflight, supervisor and driver; the user's own variables first, ours win."""
    ours = [
        {"name": "HARBORRL_JOB", "value": JOB_FILE},
        {"name": "HARBORRL_ATTEMPT", "value": str(attempt)},
        *pod_identity(),
    ]
    taken = {variable["name"] for variable in ours}
    theirs = [
        variable.model_dump(by_alias=True, exclude_none=True)
        for variable in job.spec.trainer.env
        if variable.name not in taken
    ]
    return [*theirs, *ours]


SMALL_REQUESTS = {"cpu": "50m", "memory": "128Mi"}
"""Of the preflight and the supervisor. A quota on requests refuses every pod with a container that states none."""


def with_admin_secret(job: ResolvedJob, environment: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For the server that demands it of a flush, and for those who flush; a variable of the user's own stays."""
    secret, name = job.spec.agent_server.admin_secret_ref, "HARBOR_ADMIN_SECRET"
    if secret is None or any(variable["name"] == name for variable in environment):
        return environment
    reference = {"secretKeyRef": {"name": secret.name, "key": secret.key}}
    return [*environment, {"name": name, "valueFrom": reference}]


def resources(wanted: Resources | None, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A container's `resources`; `extra` (GPUs) goes into both requests and limits, as extended resources demand."""
    requests = {**(wanted.requests if wanted else {}), **(extra or {})}
    limits = {**(wanted.limits if wanted else {}), **(extra or {})}
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


def pod_security(*, as_our_user: bool = True) -> dict[str, Any]:
    """The fsGroup lets a non-root process write claims; images that insist on root (Miles' own) keep their user."""
    security: dict[str, Any] = {
        "fsGroup": UID,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if as_our_user:
        security |= {"runAsNonRoot": True, "runAsUser": UID, "runAsGroup": UID}
    return security


def container_security(added: Sequence[str] = ()) -> dict[str, Any]:
    capabilities = {"drop": ["ALL"]} | ({"add": list(added)} if added else {})
    return {"allowPrivilegeEscalation": False, "capabilities": capabilities}


def node_affinity(job: ResolvedJob, claims: Mapping[str, Object | None]) -> dict[str, Any] | None:
    """Keeps the job's pods on one node when a claim can be mounted on one node only.

    The first pod is placed freely: the scheduler lets a pod satisfy its own affinity when no other matches.
    """
    if not any(claim is not None and is_node_bound(claim) for claim in claims.values()):
        return None
    return {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {LABEL_JOB_UID: job.job.uid}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }


def merged(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Objects merge, lists of named things merge by name as in `kubectl patch`, everything else is replaced.

    An override that adds a container must not take the supervisor or Ray away.
    """
    out = dict(base)
    for key, value in overrides.items():
        before = out.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            out[key] = merged(before, value)
        elif _are_named(value) and _are_named(before):
            out[key] = _merged_by_name(before, value)
        else:
            out[key] = value
    return out


def named(overrides: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    """The entries of a list in pod overrides; none where it is no list of named things, which Kubernetes refuses."""
    value = overrides.get(field)
    return [dict(each) for each in value] if _are_named(value) else []


def _are_named(value: Any) -> TypeGuard[list[Any]]:
    """Containers, volumes, variables: a list whose entries have a name each."""
    return isinstance(value, list) and all(isinstance(each, Mapping) and "name" in each for each in value)


def _merged_by_name(base: list[Any], overrides: list[Any]) -> list[Any]:
    wanted = {each["name"]: each for each in overrides}
    kept = [merged(each, wanted.pop(each["name"], {})) for each in base]
    return [*kept, *wanted.values()]
