"""Reads what others have a say in and admission depends on: quotas and nodes of the sandboxes, jobs beside this one."""

import asyncio
from collections.abc import Iterable, Mapping

from harborrl_operator.allowed import if_allowed
from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import KIND
from harborrl_operator.models import HarborRLJob, InvalidJobError, Settings, parse_job
from harborrl_operator.observed import Object, Surroundings, name_of, pod_phase


async def read_surroundings(
    cluster: Cluster, job: HarborRLJob, settings: Settings, preflights: Iterable[Object]
) -> Surroundings:
    """Asked for until there is a RayCluster; a running attempt keeps what it was admitted with."""
    server = job.spec.agent_server
    if server.url is not None:
        return Surroundings(jobs=await _sharers(cluster, job.namespace, server.url))
    if server.sandbox.backend != "kubernetes" or not any(_has_ended(pod) for pod in preflights):
        return Surroundings()
    namespace = server.sandbox.namespace or settings.sandbox_namespace
    quotas, ranges, nodes = await asyncio.gather(
        _readable(cluster, "ResourceQuota", namespace),
        _readable(cluster, "LimitRange", namespace),
        _readable(cluster, "Node", None),
    )
    return Surroundings(quotas=tuple(quotas), has_limit_range=bool(ranges), nodes=tuple(nodes))


def _has_ended(pod: Object) -> bool:
    return pod_phase(pod) in ("Succeeded", "Failed")


async def _sharers(cluster: Cluster, namespace: str, url: str) -> tuple[HarborRLJob, ...]:
    """Of all namespaces, or of `namespace` where the operator may see no other.

    Of hundreds of jobs a few can share a server: parsing all of them in each pass would hold up everything else.
    """
    found = await _readable(cluster, KIND, None) or await cluster.find_shared(KIND, namespace)
    may_share = (raw for raw in found if _brings_a_server(raw) or name_of(raw) in url)
    return tuple(job for raw in may_share if (job := _parsed(raw)) is not None)


def _brings_a_server(raw: Object) -> bool:
    server = (raw.get("spec") or {}).get("agentServer")
    return isinstance(server, Mapping) and bool(server.get("url"))


def _parsed(raw: Object) -> HarborRLJob | None:
    try:
        return parse_job(raw)
    except InvalidJobError:
        return None  # it says so itself, and holds nothing


async def _readable(cluster: Cluster, kind: str, namespace: str | None) -> list[dict[str, object]]:
    """Nothing where the operator's rights end: these reads make a verdict better, they are no condition for one."""
    return await if_allowed(cluster.find_shared(kind, namespace), [])
