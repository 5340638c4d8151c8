"""Workers of one pod on a real cluster: each has sandboxes of its own."""

import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from harborrl_agent_server.sandboxes.cluster import Cluster
from support.agent_server import MARKS
from support.agent_tasks import write_task
from support.sandbox_cluster import IMAGE
from support.worker_processes import crew, worker_pid

pytestmark = [pytest.mark.cluster, pytest.mark.faults, MARKS[1]]


async def sandboxes(cluster: Cluster, namespace: str) -> dict[str, str]:
    """Name to server, of trials' pods that nobody has told to go."""
    pods: list[dict[str, Any]] = (await cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods"))["items"]
    metas = [pod["metadata"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    of_trials = [meta for meta in metas if meta["name"].startswith("sb-write-greeting-")]
    return {meta["name"]: meta["labels"]["harborrl.dev/agent-server"] for meta in of_trials}


async def test_a_worker_that_is_started_again_sweeps_its_own_sandboxes_and_no_neighbours(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    write_task(tmp_path / "tasks")
    flags = f"--sandbox kubernetes --sandbox-namespace {namespace} --sandbox-image {IMAGE}"
    kubernetes = [*flags.split(), "--allowed-model-hosts", "127.0.0.1"]
    async with crew(tmp_path / "tasks", tmp_path, slots=2, sandbox=kubernetes) as server:
        lost, spared = server.ask(server.session_on(0)), server.ask(server.session_on(1))
        await server.gate.until(2)
        before = await sandboxes(cluster, namespace)
        assert sorted(name[-3:] for name in before.values()) == ["-w0", "-w1"]
        os.kill(worker_pid(server.server.pid, 0), signal.SIGKILL)
        with pytest.raises(httpx.RemoteProtocolError):
            await lost
        while len(left := await sandboxes(cluster, namespace)) == 2:
            pass
        assert [name[-3:] for name in left.values()] == ["-w1"]
        server.gate.opened.set()
        assert (await spared).json()["exit_status"] == "Submitted"
