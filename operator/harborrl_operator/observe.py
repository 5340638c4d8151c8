"""Reads everything a decision may look at, live, into one frozen value."""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from harborrl_operator.allowed import if_allowed
from harborrl_operator.belonging import find_clusters, find_pods, is_owned, role_of
from harborrl_operator.clock import seconds_since
from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import KIND, LABEL_JOB, LABEL_JOB_UID, LABEL_ROLE, LABEL_WORKLOAD_OWNER, Role
from harborrl_operator.errors import ClusterError
from harborrl_operator.models import HarborRLJob, Settings
from harborrl_operator.models.spec import ROLES
from harborrl_operator.names import JobNames
from harborrl_operator.observed import (
    Address,
    KueueAnswer,
    Object,
    Observed,
    Surroundings,
    is_terminating,
    labels,
    name_of,
    pod_phase,
    uid_of,
    version_of,
)
from harborrl_operator.problems import STUCK_SECONDS
from harborrl_operator.rights import read_rights
from harborrl_operator.surroundings import read_surroundings
from harborrl_operator.workloads import is_gated, is_held_back, was_never_held, words

Named = tuple[str, Object]
"""Kind and what has the name."""


async def observe(cluster: Cluster, job: HarborRLJob, settings: Settings, now: datetime) -> Observed:
    """One round of reads, by label where there are many and by name where there is one."""
    namespace, names, selector = job.namespace, job.names, f"{LABEL_JOB}={job.name}"
    sandboxes_in = job.spec.agent_server.sandbox.namespace or settings.sandbox_namespace
    pods, all_rays, all_deployments, service, namespaces = await asyncio.gather(
        find_pods(cluster, job),
        find_clusters(cluster, job),
        cluster.find("Deployment", namespace, selector),
        cluster.get("Service", namespace, names.agent),
        _namespaces(cluster, namespace, sandboxes_in),
    )
    rays, deployments = (_all_of(job, things) for things in (all_rays, all_deployments))
    namesakes = [] if rays else await cluster.find("Pod", namespace, selector)
    named = [] if rays else await _named(cluster, job, service, all_rays)
    # After the pods: a head pod that is seen to be gone has written its last word before.
    progress, request, references, network = await asyncio.gather(
        _progress(cluster, job, None if rays else named),
        _request(cluster, job),
        _references(cluster, job, settings),
        _network(cluster, job),
    )
    preflights = _of_role(pods, Role.PREFLIGHT, job) or _unlabelled_preflight(job, named)
    return Observed(
        agent_servers={_version(thing, names): thing for thing in deployments if not is_terminating(thing)},
        agent_service=_ours(service, job),
        agent_pods=_of_role(pods, Role.AGENT_SERVER, job),
        preflight_pod=next(iter(preflights), None),
        ray_clusters={name_of(ray): ray for ray in rays},
        trainer_pods=_of_role(pods, Role.TRAINER, job),
        request=_ours(request, job),
        predecessors=_predecessors(job, namesakes, all_rays, all_deployments, named),
        strangers=tuple(f"{kind} {name_of(thing)}" for kind, thing in named if _is_strangers(thing, job)),
        surroundings=Surroundings() if rays else await read_surroundings(cluster, job, settings, preflights),
        **await _reported(cluster, job, _ours(progress, job), now),
        **namespaces,
        **network,
        **references,
        **await _held(cluster, namespace, rays, pods, now),
    )


async def _namespaces(cluster: Cluster, own: str, sandboxes: str) -> dict[str, Any]:
    (ours, _), (theirs, is_hidden) = await asyncio.gather(_namespace(cluster, own), _namespace(cluster, sandboxes))
    return {"namespace": ours, "sandbox_namespace": theirs, "sandbox_namespace_is_hidden": is_hidden}


async def _namespace(cluster: Cluster, name: str) -> tuple[Object | None, bool]:
    """And whether it may not be read, which says nothing of whether there is one."""
    try:
        return await cluster.get("Namespace", None, name), False
    except ClusterError as error:
        if error.is_refusal:
            return None, True
        raise


async def _reported(cluster: Cluster, job: HarborRLJob, report: Object | None, now: datetime) -> dict[str, Any]:
    """What the supervisor wrote, and whether it may."""
    text = (report.get("data") or {}).get("progress") if report else None
    rights = await read_rights(cluster, job, text, now)
    return {"progress": text, "progress_exists": report is not None, "rights": rights}


def _unlabelled_preflight(job: HarborRLJob, named: list[Named]) -> tuple[Object, ...]:
    return tuple(thing for kind, thing in named if kind == "Pod" and is_owned(thing, job))


def _of_role(pods: Iterable[Object], role: Role, job: HarborRLJob) -> tuple[Object, ...]:
    """Newest first: of two versions of one server, the new one's trouble is what the user wants to read."""
    ours = (pod for pod in pods if role_of(pod, job) == role)
    return tuple(sorted(ours, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True))


_POD_ROLES = (Role.PREFLIGHT, Role.TRAINER)
"""Pods that a new run of the same name must not meet; an agent server of a deleted job leaves by itself."""


async def _named(cluster: Cluster, job: HarborRLJob, service: Object | None, rays: Iterable[Object]) -> list[Named]:
    """What there is under the names that we are about to apply, whoever made it: a forced apply would take it over.

    `service` and `rays`: what of it this pass has read already.
    """
    names = job.names
    wanted = (
        ("ConfigMap", names.config),
        ("ConfigMap", names.progress),
        ("ConfigMap", names.request),
        ("Pod", names.preflight),
        ("Service", names.agents),
        ("Service", names.trainer),
    )
    found = await asyncio.gather(*(cluster.get(kind, job.namespace, name) for kind, name in wanted))
    current = names.ray_cluster(job.status.attempt)
    asked = [(kind, thing) for (kind, _), thing in zip(wanted, found, strict=True)]
    known = [("Service", service), *(("RayCluster", ray) for ray in rays if name_of(ray) == current)]
    return [(kind, thing) for kind, thing in (*asked, *known) if thing is not None]


async def _progress(cluster: Cluster, job: HarborRLJob, named: list[Named] | None) -> Object | None:
    """`named`: what was read after the pods, None where nothing was."""
    if named is None:
        return await cluster.get("ConfigMap", job.namespace, job.names.progress)
    return next((thing for kind, thing in named if (kind, name_of(thing)) == ("ConfigMap", job.names.progress)), None)


def _predecessors(
    job: HarborRLJob,
    pods: Iterable[Object],
    rays: Iterable[Object],
    deployments: Iterable[Object],
    named: Iterable[Named],
) -> tuple[tuple[str, Object], ...]:
    """A Service is missing on purpose: taking one over does no harm, and deleting them is no right of ours."""
    seen = (
        *(("Pod", pod) for pod in pods if labels(pod).get(LABEL_ROLE) in _POD_ROLES),
        *(("RayCluster", ray) for ray in rays),
        *(("Deployment", deployment) for deployment in deployments),
        *((kind, thing) for kind, thing in named if kind == "ConfigMap"),
    )
    return tuple((kind, thing) for kind, thing in seen if _is_left_behind(thing, job))


def _is_left_behind(thing: Object, job: HarborRLJob) -> bool:
    """Of a job of our name with another uid: names are unique, so that job is gone."""
    return labels(thing).get(LABEL_JOB) == job.name and labels(thing).get(LABEL_JOB_UID) not in (None, job.uid)


def _all_of(job: HarborRLJob, things: Iterable[Object]) -> list[Object]:
    return [thing for thing in things if _is_of(thing, job)]


def _is_of(thing: Object, job: HarborRLJob) -> bool:
    """By its label, or by its owner where somebody has taken the label off."""
    marked = labels(thing).get(LABEL_JOB_UID)
    return marked == job.uid or (marked is None and is_owned(thing, job))


def _is_strangers(thing: Object, job: HarborRLJob) -> bool:
    return LABEL_JOB_UID not in labels(thing) and not is_owned(thing, job)


def _version(server: Object, names: JobNames) -> str:
    """Of a Deployment: by its name where the label is gone, or its own successor would replace it."""
    by_name = name_of(server).removeprefix(names.agent_deployment(""))
    return version_of(server) or (by_name if by_name != name_of(server) else "")


def _ours(thing: Object | None, job: HarborRLJob) -> Object | None:
    """An object of the same name that belongs to a deleted job of that name is not ours."""
    return thing if thing is not None and _is_of(thing, job) else None


async def _network(cluster: Cluster, job: HarborRLJob) -> dict[str, Any]:
    """The job's policies, and where the API server listens: it keeps an EndpointSlice of its own under this name."""
    found, endpoints = await asyncio.gather(
        cluster.find("NetworkPolicy", job.namespace, f"{LABEL_JOB}={job.name}"),
        if_allowed(cluster.get("EndpointSlice", "default", "kubernetes"), None),
    )
    policies = tuple(policy for policy in found if _is_of(policy, job))
    return {"network_policies": policies, "api_server": _addresses(endpoints or {})}


def _addresses(endpoints: Object) -> tuple[Address, ...]:
    hosts = [host for endpoint in endpoints.get("endpoints") or [] for host in endpoint.get("addresses") or []]
    ports = [port["port"] for port in endpoints.get("ports") or [] if port.get("port")]
    return tuple(Address(f"{host}/{128 if ':' in host else 32}", port) for host in hosts for port in ports)


async def _references(cluster: Cluster, job: HarborRLJob, settings: Settings) -> dict[str, Any]:
    """What the spec names that others made."""
    claims, resume_path = await asyncio.gather(_claims(cluster, job, settings), _resume_path(cluster, job))
    return {"claims": claims, "resume_path": resume_path}


async def _claims(cluster: Cluster, job: HarborRLJob, settings: Settings) -> dict[str, Object | None]:
    named = (getattr(job.spec.storage, role) for role in ROLES)
    wanted = sorted({volume.pvc if volume else settings.default_claim for volume in named})
    found = await asyncio.gather(*(cluster.get("PersistentVolumeClaim", job.namespace, claim) for claim in wanted))
    return dict(zip(wanted, found, strict=True))


async def _request(cluster: Cluster, job: HarborRLJob) -> Object | None:
    if not job.spec.suspend and job.status.suspension is None:
        return None
    return await cluster.get("ConfigMap", job.namespace, job.names.request)


async def _resume_path(cluster: Cluster, job: HarborRLJob) -> str | None:
    source = job.spec.resume_from
    if source is None or source.job is None:
        return None
    other = await cluster.get(KIND, job.namespace, source.job)
    return JobNames(job.namespace, source.job, other["metadata"]["uid"]).run_path if other is not None else None


WORKLOADS = ("Workload", "Workload.v1beta1")
"""Newest version first: Kueue 0.19 serves both, early ones only the second."""


async def _workloads(
    cluster: Cluster, namespace: str, rays: Iterable[Object], pods: Iterable[Object]
) -> tuple[dict[str, Object], KueueAnswer | None]:
    """Kueue's Workloads of what it holds back, or should; asked for only then, and none where there is no Kueue."""
    held = [uid_of(ray) for ray in rays if is_held_back(ray) or was_never_held(ray)]
    held += [uid_of(pod) for pod in pods if is_gated(pod)]
    if not held:
        return {}, None
    selector = f"{LABEL_WORKLOAD_OWNER} in ({','.join(held[:MOST_HELD])})"
    answer: KueueAnswer = "absent"
    for kind in WORKLOADS:
        try:
            found = await cluster.find(kind, namespace, selector)
        except ClusterError as error:
            if not error.is_refusal:
                raise
            if not error.is_absent:
                answer = "unreadable"  # the job waits all the same, and says less about it
            continue
        return {labels(workload)[LABEL_WORKLOAD_OWNER]: workload for workload in found}, "served"
    return {}, answer


async def _held(
    cluster: Cluster, namespace: str, rays: Iterable[Object], pods: Iterable[Object], now: datetime
) -> dict[str, Any]:
    """What is known of pods and clusters that do not start; a pod that Kueue holds back has no event that says why."""
    workloads, kueue = await _workloads(cluster, namespace, rays, pods)
    held = {name_of(pod): words(workloads.get(pod["metadata"]["uid"])) for pod in pods if is_gated(pod)}
    return {
        "workloads": workloads,
        "kueue": kueue,
        "warnings": {**held, **await _warnings(cluster, namespace, pods, now)},
    }


MOST_HELD = 16
"""A query of more uids would be long; all pods of a job wait for the same thing."""

MOST_WARNINGS = 4
"""One trouble is shown at a time: a thousand stuck trainer pods are not worth a thousand lists of events a pass."""


async def _warnings(cluster: Cluster, namespace: str, pods: Iterable[Object], now: datetime) -> dict[str, str]:
    """The newest warning of each pod that has hung for a while (a volume that does not mount, say)."""
    stuck = [
        pod
        for pod in pods
        if pod_phase(pod) == "Pending" and seconds_since(pod["metadata"]["creationTimestamp"], now) > STUCK_SECONDS
    ]
    out: dict[str, str] = {}
    for pod in stuck[:MOST_WARNINGS]:
        fields = f"involvedObject.uid={pod['metadata']['uid']},type=Warning"
        events = await cluster.find("Event", namespace, fields=fields)
        if events:
            newest = max(events, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
            out[name_of(pod)] = str(newest.get("message", ""))
    return out
