"""Addresses that users name and that never answer, and API calls that never come back, hold up no other job.

Two hundred jobs and one operator. 20 bring an agent server at an address that takes connections and says nothing; of 20
others every write is swallowed, as by a webhook that is down in their namespace. kuberay#2646, #3907 and #4087 tell of
operators that a hundred such jobs stopped.
"""

import contextlib
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from harborrl_operator.cluster import Cluster
from support import hrl
from support.fault_proxy import Call, Fault, FaultProxy, fault_proxy
from support.operator_process import OperatorProcess, kept_running, kubeconfig, operator_process, until
from support.sockets import peers

pytestmark = [pytest.mark.api, pytest.mark.processes]

START_SECONDS = 120.0
SERVED_SECONDS = 300.0
"""A bound for a busy machine: what is claimed is that the rest is served while 20 jobs hang, whatever time it takes."""

SUSPENDED, SILENT, STUCK = 160, 20, 20
"""Jobs that hold nothing; with an agent server that never answers; with writes that never come back."""


class Scene:
    """One operator over two namespaces."""

    def __init__(self, cluster: Cluster, operator: OperatorProcess, proxy: FaultProxy, names: tuple[str, str]) -> None:
        self.cluster, self.operator, self.proxy = cluster, operator, proxy
        self.sound, self.stuck = names
        self.seen_peers: set[int] = set()

    async def submit(self, namespace: str, name: str, **changes: Any) -> None:
        meta = {"name": name, "namespace": namespace}
        job = {"apiVersion": "harborrl.dev/v1alpha1", "kind": "HarborRLJob", "metadata": meta}
        await self.cluster.create(job | {"spec": hrl.QUICKSTART_SPEC | changes})

    async def phases(self, namespace: str) -> list[str]:
        """Sorted; "" of a job that no pass has written to."""
        found = await self.cluster.find("HarborRLJob", namespace)
        return sorted(str((job.get("status") or {}).get("phase", "")) for job in found)

    async def all_sound_ones_are_judged(self) -> bool:
        self.look_at_sockets()
        counts = [await self.operator.metric("harborrl_jobs", phase=phase) for phase in ("Preflight", "Suspended")]
        return counts == [SILENT, SUSPENDED]

    async def all_stuck_ones_hang(self) -> bool:
        self.look_at_sockets()
        return self.proxy.faults[0].hits >= STUCK

    def look_at_sockets(self) -> None:
        if not self.operator.has_ended:
            self.seen_peers |= peers(self.operator.process.pid, but_served_at=self.operator.port)


async def prepare(cluster: Cluster, name: str) -> None:
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    claim: dict[str, Any] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    claim["metadata"] = {"name": hrl.SETTINGS.default_claim, "namespace": name}
    claim["spec"] = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    await cluster.create(claim)


@pytest.fixture
async def scene(cluster: Cluster, kubectl: Any, tmp_path: Path) -> AsyncIterator[Scene]:
    unique = secrets.token_hex(3)
    sound, stuck, system = f"sound-{unique}", f"stuck-{unique}", f"holes-{unique}-system"
    for name in (sound, stuck, system):
        await prepare(cluster, name)
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(fault_proxy(kubectl.plane))
        config = kubeconfig(tmp_path, proxy.url)
        started = operator_process(tmp_path, config, namespace=system, watch_namespaces=f"{sound},{stuck}")
        operator = await stack.enter_async_context(kept_running(await stack.enter_async_context(started)))
        await until(operator.leads, START_SECONDS, "the operator leads")
        yield Scene(cluster, operator, proxy, (sound, stuck))


def connections(hole: socket.socket) -> int:
    """How many wait to be taken."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            hole.accept()[0].close()
            count += 1
    return count


async def test_two_hundred_jobs_of_which_20_never_answer_and_20_hang_are_served_and_nobody_is_called(
    scene: Scene,
) -> None:
    def writes_beside_the_stuck(call: Call) -> bool:
        return call.namespace == scene.stuck and call.verb in ("create", "patch", "update", "delete")

    scene.proxy.faults.append(Fault(writes_beside_the_stuck, silence=True))
    with socket.create_server(("127.0.0.1", 0), backlog=64) as hole:
        hole.setblocking(False)
        url = f"http://localhost:{hole.getsockname()[1]}"
        for index in range(STUCK):
            await scene.submit(scene.stuck, f"stuck-{index}", suspend=True)
        for index in range(SILENT):
            await scene.submit(scene.sound, f"silent-{index}", agentServer={"url": url})
        for index in range(SUSPENDED):
            await scene.submit(scene.sound, f"sound-{index}", suspend=True)
        await until(scene.all_stuck_ones_hang, SERVED_SECONDS, "each stuck job has a pass that hangs")
        await until(scene.all_sound_ones_are_judged, SERVED_SECONDS, "every other job is judged")
        assert await scene.phases(scene.sound) == ["Preflight"] * SILENT + ["Suspended"] * SUSPENDED
        assert await scene.phases(scene.stuck) == [""] * STUCK
        assert connections(hole) == 0
    assert scene.seen_peers == {scene.proxy.port}


async def test_the_look_at_sockets_would_find_a_connection_elsewhere() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_connection(other.getsockname()[:2]) as ours:
        assert other.getsockname()[1] in peers(os.getpid(), but_served_at=0)
        assert other.getsockname()[1] not in peers(os.getpid(), but_served_at=ours.getsockname()[1])
