"""A namespace can be deleted at any moment of a job's life, with the operator at work or gone, and goes.

kuberay#3388 and #4767 tell of namespaces and quotas that were stuck behind a finalizer's clean-up.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harborrl_operator.cluster import Cluster
from harborrl_operator.errors import ClusterError
from support import hrl
from support.passes import eventually, make_agent_server_ready, operator, walk_to_cluster

pytestmark = [pytest.mark.api, pytest.mark.processes]

Walk = Callable[[Any, Cluster, str], Awaitable[None]]


async def nowhere(_: Any, __: Cluster, ___: str) -> None:
    """No pass has seen the job."""


async def to_the_agent_server(_: Any, cluster: Cluster, namespace: str) -> None:
    await operator(cluster).reconcile(namespace, "quickstart")


async def to_the_preflight(kubectl: Any, cluster: Cluster, namespace: str) -> None:
    await to_the_agent_server(kubectl, cluster, namespace)
    await make_agent_server_ready(kubectl, cluster, namespace)
    await operator(cluster).reconcile(namespace, "quickstart")


MOMENTS: tuple[Walk, ...] = (nowhere, to_the_agent_server, to_the_preflight, walk_to_cluster)


async def begin(cluster: Cluster, namespace: str) -> None:
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    claim: dict[str, Any] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    claim["metadata"] = {"name": hrl.SETTINGS.default_claim, "namespace": namespace}
    claim["spec"] = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    await cluster.create(claim)
    job = {"apiVersion": "harborrl.dev/v1alpha1", "kind": "HarborRLJob", "spec": hrl.QUICKSTART_SPEC}
    await cluster.create(job | {"metadata": {"name": "quickstart", "namespace": namespace}})


async def delete(cluster: Cluster, name: str) -> None:
    namespace = await cluster.get("Namespace", None, name)
    assert namespace is not None
    await cluster.delete("Namespace", "", name, namespace["metadata"]["uid"])


async def works_on(cluster: Cluster, namespace: str) -> None:
    """Passes while all goes: what they would make is refused, which is no fault of theirs."""
    for _ in range(3):
        try:
            await operator(cluster).reconcile(namespace, "quickstart")
        except ClusterError as refused:
            assert refused.status in (403, 404, 409), refused  # noqa: PT017 - one of them, if any


async def test_a_namespace_goes_at_any_moment_whether_the_operator_works_or_not(kubectl: Any, cluster: Cluster) -> None:
    names = {f"goes-{index}-{secrets.token_hex(3)}": walk for index, walk in enumerate((*MOMENTS, *MOMENTS))}
    for name, walk in names.items():
        await begin(cluster, name)
        await walk(kubectl, cluster, name)
    for name in names:
        await delete(cluster, name)
    for name in [*names][: len(MOMENTS)]:  # of the others the operator hears nothing
        await works_on(cluster, name)

    async def all_are_gone() -> bool:
        return not any([await cluster.get("Namespace", None, name) for name in names])

    await eventually(all_are_gone)
