"""Restricted networks of sandboxes on a real cluster: who reaches whom, tried from inside.

Where the cluster enforces no NetworkPolicies, the first test says so and the others fail.
"""

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.base import ShellSandbox
from harborrl_agent_server.sandboxes.cluster import Cluster
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from harborrl_agent_server.sandboxes.network import own_policy
from harborrl_agent_server.sandboxes.sandbox_network import SandboxNetwork
from support.agent_http import replies
from support.agent_server import BUDGETS, MARKS, stage
from support.agent_tasks import write_task
from support.sandbox_api import sandbox_of
from support.sandbox_cluster import pods, policies, settings_for, trusting
from support.sandbox_suite import started

pytestmark = [pytest.mark.cluster, MARKS[1]]

NO_NETWORK = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)
PUBLIC = NetworkPolicy()
API = "$KUBERNETES_SERVICE_HOST 443"

FOLLOW_SECONDS = 20
"""A plugin follows pods and policies with a delay."""


@pytest.fixture
async def names(cluster: Cluster) -> str:
    """Address of a pod with the open ports 53 and 8181: the cluster's name server."""
    found = await cluster.request(
        "GET", "/api/v1/namespaces/kube-system/pods", query=[("labelSelector", "k8s-app=kube-dns")]
    )
    address: str = next(pod["status"]["podIP"] for pod in found["items"] if pod["status"].get("podIP"))
    return address


@pytest.fixture
async def provider(namespace: str, names: str, tmp_path: Path) -> AsyncIterator[KubernetesProvider]:
    """Its tasks may list the name server's address, which is private."""
    provider = trusting(settings_for(namespace, tmp_path, sandbox_config={"privateHosts": [f"{names}/32"]}))
    await provider.open()
    yield provider
    await provider.close()


def allowlist(*hosts: str) -> NetworkPolicy:
    return NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=list(hosts))


async def connects(sandbox: ShellSandbox, target: str) -> bool:
    """`target`: host and port."""
    done = await sandbox.exec(f"nc -w 3 {target} </dev/null >/dev/null 2>&1", timeout_sec=15)
    return done.return_code == 0


async def becomes(sandbox: ShellSandbox, target: str, *, open: bool) -> bool:  # noqa: A002 - reads as a sentence
    """Whether it is so within the limit; each try takes a connection's time."""
    deadline = time.monotonic() + FOLLOW_SECONDS
    while await connects(sandbox, target) is not open:
        if time.monotonic() > deadline:
            return False
    return True


async def test_the_proof_is_had_on_this_cluster_and_leaves_nothing(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    provider = KubernetesProvider.from_settings(settings_for(namespace, tmp_path))
    await provider.open()
    assert provider.network_policies() == "unknown yet"
    await provider.enforcement.assured("")
    assert provider.network_policies().startswith("enforced: "), provider.network_policies()
    assert await pods(cluster, namespace) == []
    assert await policies(cluster, namespace) == ["harborrl-no-network"]
    await provider.close()


async def test_a_namespace_that_lets_everybody_out_is_found_out(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Policies add up: as if the plugin enforced none."""
    wide = own_policy("wide", {}, {}, [{}])
    wide["metadata"].pop("ownerReferences")
    wide["spec"]["podSelector"] = {}
    path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
    await cluster.request("POST", path, body=wide)
    provider = KubernetesProvider.from_settings(settings_for(namespace, tmp_path))
    await provider.open()
    try:
        with pytest.raises(SandboxStartError, match=r"NetworkNotEnforced.*cuts off reached.*--unsafe-ignore"):
            await sandbox_of(provider, tmp_path, NO_NETWORK).start(force_build=False)
        async with started(provider, tmp_path / "public"):
            pass
    finally:
        await provider.close()


async def test_a_task_without_network_reaches_nobody_and_another_does(
    provider: KubernetesProvider, names: str, tmp_path: Path
) -> None:
    async with (
        started(provider, tmp_path / "closed", NO_NETWORK) as cut,
        started(provider, tmp_path / "open") as free,
    ):
        for target in (API, f"{names} 53"):
            assert await becomes(free, target, open=True), target
            assert await becomes(cut, target, open=False), target
        assert (await cut.exec("nslookup kubernetes.default.svc.cluster.local", timeout_sec=20)).return_code != 0


async def test_an_allowlist_opens_the_address_that_it_names_and_no_other(
    cluster: Cluster, provider: KubernetesProvider, names: str, tmp_path: Path
) -> None:
    sandbox = sandbox_of(provider, tmp_path, allowlist(names))
    await sandbox.start(force_build=False)
    assert await becomes(sandbox, f"{names} 53", open=True)
    assert await becomes(sandbox, API, open=False)
    await sandbox.stop(delete=True)
    assert (sandbox.left, await policies(cluster, provider.namespace)) == (False, ["harborrl-no-network"])


async def test_a_listed_name_works_without_a_name_server_and_others_fail_soon(
    provider: KubernetesProvider, names: str, tmp_path: Path
) -> None:
    async def resolve(_: str) -> list[str]:
        return [names]

    provider.network.resolve = resolve
    async with started(provider, tmp_path, allowlist("mirror.example")) as sandbox:
        assert await becomes(sandbox, "mirror.example 53", open=True)
        assert await becomes(sandbox, API, open=False)
        began = time.monotonic()
        assert not await connects(sandbox, "elsewhere.example 443")
        assert time.monotonic() - began < 15


async def test_a_private_address_is_refused_with_its_reason(provider: KubernetesProvider, tmp_path: Path) -> None:
    with pytest.raises(SandboxStartError, match=r"HostRefused.*169\.254\.169\.254.*privateHosts"):
        await sandbox_of(provider, tmp_path, allowlist("169.254.169.254")).start(force_build=False)


async def test_an_agent_inside_a_restricted_sandbox_reaches_one_port_of_its_models_address(
    provider: KubernetesProvider, names: str, tmp_path: Path
) -> None:
    sandbox = sandbox_of(provider, tmp_path, NO_NETWORK)
    sandbox.network = SandboxNetwork(provider.network, sandbox.name, reachable=f"http://{names}:53", private=())
    await sandbox.start(force_build=False)
    async with started(provider, tmp_path / "open") as free:
        for target, is_open in ((f"{names} 53", True), (f"{names} 8181", False), (API, False)):
            assert await becomes(free, target, open=True), target
            assert await becomes(sandbox, target, open=is_open), target
    await sandbox.stop(delete=True)


async def test_each_phase_has_its_own_network(provider: KubernetesProvider, names: str, tmp_path: Path) -> None:
    sandbox = sandbox_of(provider, tmp_path, PUBLIC, later=[NO_NETWORK, allowlist(names)])
    await sandbox.start(force_build=False)
    assert await becomes(sandbox, API, open=True)
    await sandbox.exec("sleep 600 >/dev/null 2>&1 &")
    for policy, to_api, to_names in ((NO_NETWORK, False, False), (allowlist(names), False, True), (PUBLIC, True, True)):
        await sandbox.set_network_policy(policy)
        if not to_api:
            assert not await connects(sandbox, API)
        assert await becomes(sandbox, API, open=to_api), policy
        assert await becomes(sandbox, f"{names} 53", open=to_names), policy
    listed = (await sandbox.exec("ps")).stdout or ""
    assert "sh" in listed
    assert "sleep 600" not in listed
    await sandbox.stop(delete=True)


async def test_a_server_that_restarts_sweeps_the_policies_it_left(
    cluster: Cluster, namespace: str, names: str, tmp_path: Path
) -> None:
    settings = settings_for(namespace, tmp_path, sandbox_config={"privateHosts": [f"{names}/32"]})
    killed = trusting(settings)
    await killed.open()
    left = sandbox_of(killed, tmp_path, allowlist(names))
    await left.start(force_build=False)
    assert await policies(cluster, namespace) == ["harborrl-no-network", left.name]
    again = trusting(settings)
    await again.open()
    assert await policies(cluster, namespace) == ["harborrl-no-network"]
    assert await pods(cluster, namespace) == []
    for server in (again, killed):
        await server.close()


CUT_OFF = (
    "nc -w 3 $KUBERNETES_SERVICE_HOST 443 </dev/null && echo out >/app/greeting.txt || echo hello >/app/greeting.txt"
)


@pytest.mark.parametrize(
    ("environment", "toml"),
    [
        pytest.param('network_mode = "no-network"', "", id="the whole trial"),
        pytest.param("", '[agent]\nnetwork_mode = "no-network"', id="the agent alone"),
    ],
)
async def test_a_whole_trial_without_network_is_graded_and_leaves_nothing(
    environment: str, toml: str, cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """With the proof, which its task waits for."""
    settings = settings_for(namespace, tmp_path, budgets=replace(BUDGETS, environment_start_s=300))
    tasks = tmp_path / "tasks"
    write_task(tasks, environment=f'workdir = "/app"\n{environment}', toml=toml)
    script = replies(f"```sh\n{CUT_OFF}\n```", "TASK_DONE")
    provider = KubernetesProvider.from_settings(settings)  # the stage opens it
    async with stage(tasks, script, provider=provider, budgets=settings.budgets) as server:
        answer = await server.run()
        assert (await server.health())["network_policies"].startswith("enforced: ")
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 1.0), answer
    assert (await pods(cluster, namespace), await policies(cluster, namespace)) == ([], ["harborrl-no-network"])
