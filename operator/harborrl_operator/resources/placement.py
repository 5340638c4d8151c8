"""Where the trainer's pods go: selectors, tolerations, nearness. The head is trainer node 0, placed like the others."""

from collections.abc import Mapping
from typing import Any

from harborrl_operator.constants import GPU_RESOURCE, LABEL_JOB_UID, LABEL_ROLE, Role
from harborrl_operator.observed import Object
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.resources.common import node_affinity

GPU_PRODUCT = "nvidia.com/gpu.product"

KUEUE_REQUIRED = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE_GROUP = "kueue.x-k8s.io/podset-group-name"

PREFERENCE_WEIGHT = 100
"""The heaviest that the scheduler knows: nearness outweighs its own habits of spreading."""


def placement(job: ResolvedJob, claims: Mapping[str, Object | None]) -> dict[str, Any]:
    """The part of a pod's spec that decides on its node."""
    trainer = job.spec.trainer
    selector = dict(trainer.node_selector)
    if job.gpus_per_node and trainer.gpu_product:
        selector[GPU_PRODUCT] = trainer.gpu_product
    wanted: dict[str, Any] = {
        "nodeSelector": selector,
        "tolerations": tolerations(job),
        "affinity": _affinity(job, claims),
        "priorityClassName": trainer.priority_class_name,
    }
    return {field: value for field, value in wanted.items() if value}


def own_tolerations(job: ResolvedJob) -> list[dict[str, Any]]:
    """Those that the user named."""
    return [one.model_dump(by_alias=True, exclude_defaults=True) for one in job.spec.trainer.tolerations]


def tolerations(job: ResolvedJob) -> list[dict[str, Any]]:
    """Those, and the one that every pod on GPU nodes needs."""
    theirs = own_tolerations(job)
    if not job.gpus_per_node:
        return theirs
    # The taint that keeps other pods off GPU nodes, under the name that NVIDIA's operator and the clouds give it.
    return [{"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}, *theirs]


def _affinity(job: ResolvedJob, claims: Mapping[str, Object | None]) -> dict[str, Any]:
    """Kueue places by annotations instead, and would not see an affinity when it counts what fits."""
    bound = node_affinity(job, claims) or {}
    hints = job.spec.trainer.topology
    if job.spec.queue_name or not (hints.required or hints.preferred):
        return bound
    pods: dict[str, list[Any]] = dict(bound.get("podAffinity", {}))
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    if hints.required:
        pods[required] = [*pods.get(required, []), _together(job, hints.required)]
    if hints.preferred:
        term = {"weight": PREFERENCE_WEIGHT, "podAffinityTerm": _together(job, hints.preferred)}
        pods[preferred] = [*pods.get(preferred, []), term]
    return {**bound, "podAffinity": pods}


def _together(job: ResolvedJob, label: str) -> dict[str, Any]:
    """The first pod is placed freely: the scheduler lets a pod satisfy its own affinity when no other matches."""
    ours = {LABEL_JOB_UID: job.job.uid, LABEL_ROLE: Role.TRAINER.value}
    return {"labelSelector": {"matchLabels": ours}, "topologyKey": label}


def topology_annotations(job: ResolvedJob) -> dict[str, str]:
    """Kueue's topology-aware scheduling; the group makes head and workers share one domain, not one each."""
    hints = job.spec.trainer.topology
    if not job.spec.queue_name or not (hints.required or hints.preferred):
        return {}
    wanted = {KUEUE_REQUIRED: hints.required} if hints.required else {KUEUE_PREFERRED: hints.preferred or ""}
    return wanted | ({KUEUE_GROUP: "trainer"} if job.spec.trainer.nodes > 1 else {})
