"""Sandboxes on the real cluster, in a namespace of their own."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from harborrl_agent_server.sandboxes.cluster import Cluster
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from harborrl_agent_server.sandboxes.probe import Finding, Proof
from harborrl_agent_server.settings import Settings
from support.agent_server import BUDGETS

IMAGE = os.environ.get("HARBORRL_TEST_SANDBOX_IMAGE", "localhost/devcluster/busybox:1")
"""On the node, with /bin/sh."""

TRIED_ELSEWHERE = Finding(Proof.ENFORCED, "tests/cluster/test_agent_sandbox_network.py tries it")


@contextlib.asynccontextmanager
async def own_namespace(cluster: Cluster, level: str = "baseline") -> AsyncIterator[str]:
    name = f"hrl-sandbox-test-{uuid4().hex[:6]}"
    labels = {"pod-security.kubernetes.io/enforce": level}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    await cluster.request("POST", "/api/v1/namespaces", body=body)
    try:
        yield name
    finally:
        await cluster.request("DELETE", f"/api/v1/namespaces/{name}")


def settings_for(namespace: str, folder: Path, **changes: Any) -> Settings:
    settings = Settings(
        tasks_dir=folder,
        trials_dir=folder / "trials",
        sandbox_namespace=namespace,
        sandbox_image=IMAGE,
        pod_name=f"agent-{uuid4().hex[:6]}",
        budgets=replace(BUDGETS, environment_start_s=60),
    )
    return replace(settings, **changes)


def trusting(settings: Settings) -> KubernetesProvider:
    """Not open yet; takes the cluster's NetworkPolicies for enforced, so that no pods of a probe stand about."""
    provider = KubernetesProvider.from_settings(settings)
    provider.enforcement.settle(TRIED_ELSEWHERE)
    return provider


async def limit_pods(cluster: Cluster, namespace: str, most: int) -> None:
    """A quota that is enforced when this returns: a pod made right behind a new quota may still get past it."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"}}
    await cluster.request("POST", path, body=body | {"spec": {"hard": {"pods": str(most)}}})

    async with asyncio.timeout(60):
        while "used" not in (await cluster.request("GET", f"{path}/pods")).get("status", {}):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.05)


async def pods(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """Those that are not on their way out."""
    listed = await cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods")
    return [pod for pod in listed["items"] if not pod["metadata"].get("deletionTimestamp")]


async def policies(cluster: Cluster, namespace: str) -> list[str]:
    listed = await cluster.request("GET", f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies")
    return sorted(policy["metadata"]["name"] for policy in listed["items"])
