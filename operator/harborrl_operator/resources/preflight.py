"""The preflight pod: CPU only, with the job's volumes, before anything holds a GPU.

With engine miles a second container asks the parser of the trainer's image.
"""

from collections.abc import Mapping
from typing import Any

from harborrl_operator.constants import ANNOTATION_CONFIG, Role
from harborrl_operator.models.spec import ROLES
from harborrl_operator.observed import Object
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.resources.common import (
    SMALL_REQUESTS,
    UNDISTURBED,
    config_mount,
    config_volume,
    container_security,
    merged,
    metadata,
    node_affinity,
    pod_security,
    storage_mounts,
    storage_volumes,
    trainer_account,
    trainer_environment,
)
from harborrl_operator.resources.miles_parser import with_parser
from harborrl_operator.resources.placement import own_tolerations

LIFE_SECONDS = 600
"""A preflight that takes longer hangs on something; the kubelet ends it and it is run again. Miles' image may take
longer to come: the node goes on pulling between two runs, and no GPU waits for it."""


SHARED_OVERRIDES = (
    "dnsConfig",
    "hostAliases",
    "imagePullSecrets",
    "priorityClassName",
    "securityContext",
    "serviceAccountName",
    "tolerations",
)
"""Of `trainer.podOverrides`: without what lets a trainer pod pull its image, be placed and read its volumes, the
preflight would refuse a job that can run. Not its node selector: a preflight needs no GPU node."""


def pod(job: ResolvedJob, attempt: int, claims: Mapping[str, Object | None]) -> dict[str, Any]:
    meta = metadata(job.job, job.job.names.preflight, Role.PREFLIGHT)
    meta["annotations"] = {ANNOTATION_CONFIG: key(job, attempt), **UNDISTURBED}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": LIFE_SECONDS,
        "terminationGracePeriodSeconds": 10,
        "serviceAccountName": trainer_account(job.spec),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(as_our_user=job.spec.trainer.engine == "native"),
        "containers": [
            {
                "name": "preflight",
                "image": image(job),
                "imagePullPolicy": job.settings.image_pull_policy,
                "command": ["python", "-m", "harborrl_trainer", "preflight"],
                "env": trainer_environment(job, attempt),
                "resources": {"requests": SMALL_REQUESTS},
                "securityContext": container_security(),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [config_mount(), *storage_mounts(job, ROLES)],
            }
        ],
        "volumes": [config_volume(job), *storage_volumes(job, ROLES)],
    }
    placed = {
        "affinity": node_affinity(job, claims),
        "priorityClassName": job.spec.trainer.priority_class_name,
        "tolerations": own_tolerations(job),
    }
    spec |= {field: value for field, value in placed.items() if value}
    spec = with_parser(job, attempt, spec)
    overrides = job.spec.trainer.pod_overrides
    spec = merged(spec, {field: overrides[field] for field in SHARED_OVERRIDES if field in overrides})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def key(job: ResolvedJob, attempt: int) -> str:
    """What a preflight pod judged: another attempt or configuration, or less room beside others, is judged anew."""
    beside = f"-p{job.promised}" if job.promised else ""
    return f"{job.config_hash}-a{attempt}{beside}"


def image(job: ResolvedJob) -> str:
    """Miles' stock image does not carry our preflight; ours does."""
    return job.settings.trainer_image if job.spec.trainer.engine == "miles" else job.trainer_image
