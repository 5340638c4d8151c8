"""Versions of an agent server with the real Deployment controller and garbage collector; no kubelet."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from harborrl_agent_server.sandboxes.cluster import Cluster as ServersCluster
from harborrl_agent_server.sandboxes.standing import Belonging
from harborrl_agent_server.scope import Standing
from harborrl_agent_server.settings import JobIdentity
from harborrl_operator.cluster import Cluster
from support.passes import (
    Submit,
    conditions,
    eventually,
    job_of,
    make_agent_server_ready,
    operator,
    walk_to_cluster,
)

pytestmark = pytest.mark.api


async def test_a_changed_agent_server_starts_beside_the_old_one_and_takes_its_place_once_it_is_ready(
    kubectl: Any, cluster: Cluster, submit: Submit, namespace: str
) -> None:
    """With the real Deployment controller and garbage collector."""
    submit()
    await walk_to_cluster(kubectl, cluster, namespace)
    (old,) = await names_of(cluster, namespace)
    submit({"agentServer.image": "agents:2"})
    await operator(cluster).reconcile(namespace, "quickstart")
    (new,) = await names_of(cluster, namespace) - {old}
    assert await selected(cluster, namespace) in old
    await make_agent_server_ready(kubectl, cluster, namespace, new)
    await operator(cluster).reconcile(namespace, "quickstart")
    assert await selected(cluster, namespace) in new
    assert await names_of(cluster, namespace) == {old, new}
    await operator(cluster).reconcile(namespace, "quickstart")
    assert await names_of(cluster, namespace) == {new}
    job = await job_of(cluster, namespace)
    assert conditions(job)["AgentServerReady"][0] == "True"
    assert job.status.attempt == 1


async def names_of(cluster: Cluster, namespace: str) -> set[str]:
    return {server["metadata"]["name"] for server in await cluster.find("Deployment", namespace)}


async def selected(cluster: Cluster, namespace: str) -> str:
    service = await cluster.get("Service", namespace, "quickstart-agent")
    assert service is not None
    version: str = service["spec"]["selector"]["harborrl.dev/agent-version"]
    return version


@pytest.fixture
async def server(kubectl: Any, chart_roles: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServersCluster]:
    """An agent server's own client, beside the roles that the chart makes for its account."""
    kubectl.ok("apply", "--filename", "-", stdin=chart_roles)
    monkeypatch.setenv("KUBECONFIG", str(kubectl.plane.kubeconfig))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    connected = await ServersCluster.connect()
    yield connected
    await connected.close()


async def test_a_server_learns_from_the_api_server_that_it_was_replaced_and_that_its_job_is_gone(
    kubectl: Any, cluster: Cluster, server: ServersCluster, submit: Submit, namespace: str
) -> None:
    """And the chart lets its account ask."""
    submit()
    await operator(cluster).reconcile(namespace, "quickstart")
    job, (name,) = await job_of(cluster, namespace), await names_of(cluster, namespace)
    account = f"system:serviceaccount:{namespace}:harborrl-agent-server"

    async def may_ask() -> bool:
        asked = ("deployments.apps", "harborrljobs.harborrl.dev")
        said = [kubectl("auth", "can-i", "get", kind, "-n", namespace, "--as", account).stdout for kind in asked]
        return [text.strip() for text in said] == ["yes", "yes"]

    await eventually(may_ask)
    ours = Belonging(partial(server.request, "GET"), JobIdentity(namespace, "quickstart", job.uid), name)
    await ours.remember()
    assert await ours.standing() is Standing.ALONE
    kubectl.ok("delete", "deployment", name, "-n", namespace)
    await operator(cluster).reconcile(namespace, "quickstart")
    assert await names_of(cluster, namespace) == {name}
    assert await ours.standing() is Standing.REPLACED
    kubectl.ok("delete", "hrl", "quickstart", "-n", namespace)
    assert await ours.standing() is Standing.ORPHANED
