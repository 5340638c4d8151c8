"""Which pods are the job's. Labels are taken off by hand, so a trainer pod is known by the RayCluster that owns it too.

Two drivers must never write to one run: a pod that is not found counts as gone, and the next attempt starts beside it.
"""

import asyncio

from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import LABEL_JOB, LABEL_JOB_UID, LABEL_RAY_CLUSTER, LABEL_ROLE, Role
from harborrl_operator.heads import is_known_head
from harborrl_operator.models import HarborRLJob
from harborrl_operator.names import JobNames
from harborrl_operator.observed import Object, controller_of, labels, name_of, ray_cluster_of, uid_of


async def find_pods(cluster: Cluster, job: HarborRLJob) -> list[Object]:
    """By our uid, by the RayClusters that may still have pods, and the known head by its name; each pod once."""
    clusters = recent_clusters(job)
    lists = await asyncio.gather(
        cluster.find("Pod", job.namespace, f"{LABEL_JOB_UID}={job.uid}"),
        cluster.find("Pod", job.namespace, f"{LABEL_RAY_CLUSTER} in ({','.join(clusters)})"),
    )
    found: dict[str, Object] = {uid_of(pod): pod for listed in lists for pod in listed if is_pod_of(pod, job)}
    head = await _known_head(cluster, job, found)
    return [*found.values(), *([head] if head is not None else [])]


def recent_clusters(job: HarborRLJob) -> tuple[str, ...]:
    """Names of the RayClusters of this attempt and the last; of one before it no pod was left when the last began."""
    last = job.status.attempt
    return tuple(job.names.ray_cluster(attempt) for attempt in (last - 1, last) if attempt > 0)


async def find_clusters(cluster: Cluster, job: HarborRLJob) -> list[Object]:
    """By label, and by the names that ours would have; whose they are is told apart by the caller."""
    found: list[Object] = [*await cluster.find("RayCluster", job.namespace, f"{LABEL_JOB}={job.name}")]
    there = {name_of(ray) for ray in found}
    current = job.names.ray_cluster(job.status.attempt)
    if current in there:
        return found
    wanted = [name for name in recent_clusters(job) if name not in there]
    named = await asyncio.gather(*(cluster.get("RayCluster", job.namespace, name) for name in wanted))
    return [*found, *(ray for ray in named if ray is not None)]


def is_owned(thing: Object, job: HarborRLJob) -> bool:
    """Whether the job is the controller of what the operator made."""
    owner = controller_of(thing)
    return owner is not None and owner["uid"] == job.uid


def is_pod_of(pod: Object, job: HarborRLJob) -> bool:
    """One that bears another job's uid is that job's, a deleted one of our name included."""
    marked = labels(pod).get(LABEL_JOB_UID)
    return marked == job.uid or (marked is None and (_is_trainers(pod, job.names) or is_owned(pod, job)))


def _is_trainers(pod: Object, names: JobNames) -> bool:
    cluster, prefix = ray_cluster_of(pod), names.ray_cluster(0)[:-1]
    return cluster.startswith(prefix) and cluster.removeprefix(prefix).isdecimal()


def role_of(pod: Object, job: HarborRLJob) -> str:
    """By its owner or name where the label is gone; empty for an agent server's pod, which its ReplicaSet lets go."""
    if _is_trainers(pod, job.names):
        return Role.TRAINER
    return labels(pod).get(LABEL_ROLE) or (Role.PREFLIGHT if name_of(pod) == job.names.preflight else "")


async def _known_head(cluster: Cluster, job: HarborRLJob, found: dict[str, Object]) -> Object | None:
    """The head that earlier passes followed, if no list has it although it is there: all its labels are gone."""
    trainer = job.status.trainer
    if trainer is None or not trainer.head_pod or any(name_of(pod) == trainer.head_pod for pod in found.values()):
        return None
    pod = await cluster.get("Pod", job.namespace, trainer.head_pod)
    if pod is None or not is_known_head(trainer, pod) or not _is_trainers(pod, job.names):
        return None
    return pod
