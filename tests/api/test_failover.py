"""Two real operator processes against a real API server: one leads, the other follows."""

import json
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from harborrl_operator.cluster import Cluster
from support.fault_proxy import FaultProxy, fault_proxy
from support.operator_process import OperatorProcess, kubeconfig, operator_process, until

pytestmark = [pytest.mark.api, pytest.mark.processes]

Submit = Callable[..., subprocess.CompletedProcess[str]]
START_SECONDS = 60.0
"""A Python process on a machine that is busy with other things."""

LEASES = {"leases.coordination.k8s.io"}
LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "harborrl-operator"}}


@pytest.fixture
def system(kubectl: Any, namespace: str) -> str:
    """A namespace for the operators themselves, with the chart's Lease."""
    name = f"{namespace}-system"
    kubectl.ok("create", "namespace", name)
    kubectl.ok("create", "-n", name, "-f", "-", stdin=json.dumps(LEASE))
    return name


class Pair:
    """Starts candidates, each behind a proxy of its own."""

    def __init__(self, stack: AsyncExitStack, folder: Path, plane: Any, system: str, namespace: str) -> None:
        self._stack, self._folder, self._plane = stack, folder, plane
        self._system, self._namespace = system, namespace

    async def start(self, name: str) -> tuple[OperatorProcess, FaultProxy]:
        proxy = await self._stack.enter_async_context(fault_proxy(self._plane))
        process = operator_process(
            self._folder,
            kubeconfig(self._folder, proxy.url),
            name=name,
            namespace=self._system,
            watch_namespaces=self._namespace,
        )
        return await self._stack.enter_async_context(process), proxy


@pytest.fixture
async def pair(tmp_path: Path, kubectl: Any, system: str, namespace: str) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        yield Pair(stack, tmp_path, kubectl.plane, system, namespace)


async def phase(cluster: Cluster, namespace: str, name: str) -> str:
    job = await cluster.get("HarborRLJob", namespace, name)
    return str(((job or {}).get("status") or {}).get("phase", ""))


async def test_the_spare_is_ready_watches_nothing_and_follows_a_killed_leader_within_20_seconds(
    pair: Pair, cluster: Cluster, submit: Submit, namespace: str
) -> None:
    first, _ = await pair.start("first")
    await until(first.leads, START_SECONDS, "first leads")
    second, seen = await pair.start("second")
    await until(second.is_spare, START_SECONDS, "second is ready as a spare")
    assert await second.ask("/readyz") == (200, f"spare of {await holder(cluster, namespace)}")
    assert (await second.ask("/healthz"))[0] == 200
    assert not any(call.is_watch for call in seen.calls)
    assert {call.resource for call in seen.calls if call.verb != "list"} == {"leases.coordination.k8s.io"}
    assert (await first.metric("harborrl_leader"), await second.metric("harborrl_leader")) == (1, 0)
    first.send(signal.SIGKILL)
    assert await until(second.leads, START_SECONDS, "the spare leads") < 20

    async def job_is_taken_up() -> bool:
        return await phase(cluster, namespace, "quickstart") == "StartingAgentServer"

    assert submit().returncode == 0
    await until(job_is_taken_up, START_SECONDS, "the spare works on a new job")


async def test_a_leader_that_is_told_to_stop_hands_over_at_once_and_ends_with_0(
    pair: Pair, cluster: Cluster, namespace: str
) -> None:
    first, _ = await pair.start("first")
    await until(first.leads, START_SECONDS, "first leads")
    second, _ = await pair.start("second")
    await until(second.is_spare, START_SECONDS, "second is ready as a spare")
    first.send(signal.SIGTERM)
    # Long before the lease would have run out by itself.
    assert await until(second.leads, START_SECONDS, "the spare leads") < 12
    assert await first.exit_code(20) == 0
    assert (await holder(cluster, namespace)).startswith("second")


async def test_a_leader_that_cannot_renew_stops_before_the_spare_leads_and_ends_with_1(
    pair: Pair, cluster: Cluster, submit: Submit, namespace: str
) -> None:
    first, path = await pair.start("first")
    await until(first.leads, START_SECONDS, "first leads")
    second, other = await pair.start("second")
    await until(second.is_spare, START_SECONDS, "second is ready as a spare")
    await path.go_away()
    written = len(path.calls)
    assert await first.exit_code(20) == 1
    assert not await second.leads()
    await path.come_back()
    await until(second.leads, START_SECONDS, "the spare leads")
    assert submit().returncode == 0

    async def job_is_taken_up() -> bool:
        return await phase(cluster, namespace, "quickstart") == "StartingAgentServer"

    await until(job_is_taken_up, START_SECONDS, "the spare works on a new job")
    assert len(path.calls) == written
    assert any(call.is_watch for call in other.calls)


async def test_a_leader_that_slept_through_its_lease_ends_when_it_wakes_and_takes_nothing_back(
    pair: Pair, cluster: Cluster, namespace: str
) -> None:
    first, path = await pair.start("first")
    await until(first.leads, START_SECONDS, "first leads")
    second, _ = await pair.start("second")
    await until(second.is_spare, START_SECONDS, "second is ready as a spare")
    first.send(signal.SIGSTOP)
    await until(second.leads, START_SECONDS, "the spare leads")
    asked = len(path.calls)
    first.send(signal.SIGCONT)
    assert await first.exit_code(START_SECONDS) == 1
    assert (await holder(cluster, namespace)).startswith("second")
    assert {call.resource for call in path.calls[asked:] if call.verb not in ("get", "list")} <= LEASES
    assert [line for line in first.lines() if "lease released" in line] == []


async def holder(cluster: Cluster, namespace: str) -> str:
    lease = await cluster.get("Lease", f"{namespace}-system", "harborrl-operator")
    assert lease is not None
    return str(lease["spec"]["holderIdentity"])
