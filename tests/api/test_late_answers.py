"""Two seconds between a write and what the operator hears of it: each side effect happens once.

kopf#729 and #844 tell of handlers that ran twice, or not at all, because their own change came back late.
"""

import json
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from harborrl_operator.cluster import Cluster
from support import hrl
from support.fault_proxy import Call, Delay, FaultProxy, fault_proxy
from support.operator_process import OperatorProcess, kept_running, kubeconfig, operator_process, until
from support.passes import make_agent_server_ready, set_status

pytestmark = [pytest.mark.api, pytest.mark.processes]

Submit = Callable[..., subprocess.CompletedProcess[str]]
LATE_SECONDS = 2.0
LONGEST_SECONDS = 180.0
"""For a machine that is busy with other things."""

DECISIVE = (
    "deployments.apps",
    "events",
    "harborrljobs.harborrl.dev/status",
    "pods",
    "rayclusters.ray.io",
)
"""What must not happen twice. Twenty other writes a pass would only make the test longer."""


def is_late(call: Call) -> bool:
    """Every watch, and every answer to a decisive write. The Lease has its own test."""
    return call.is_watch or (call.verb in ("create", "patch", "delete") and call.resource in DECISIVE)


class Slow:
    """A job under an operator that hears everything late."""

    def __init__(self, cluster: Cluster, namespace: str, proxy: FaultProxy, operator: OperatorProcess) -> None:
        self.cluster, self.namespace, self.proxy, self.operator = cluster, namespace, proxy, operator

    async def reaches(self, phase: str) -> None:
        async def is_in_phase() -> bool:
            job = await self.cluster.get("HarborRLJob", self.namespace, "quickstart")
            return bool(job and (job.get("status") or {}).get("phase") == phase)

        await until(is_in_phase, LONGEST_SECONDS, phase)

    async def sees(self, generation: int) -> None:
        async def has_seen() -> bool:
            job = await self.cluster.get("HarborRLJob", self.namespace, "quickstart")
            return bool(job and job["status"].get("observedGeneration") == generation)

        await until(has_seen, LONGEST_SECONDS, f"generation {generation} was seen")

    def count(self, verb: str, resource: str) -> int:
        return sum(
            (call.verb, call.resource, call.namespace) == (verb, resource, self.namespace) for call in self.calls
        )

    @property
    def calls(self) -> list[Call]:
        return self.proxy.calls


@pytest.fixture
async def slow(cluster: Cluster, kubectl: Any, namespace: str, tmp_path: Path) -> AsyncIterator[Slow]:
    system = f"{namespace}-system"
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": system}})
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(fault_proxy(kubectl.plane))
        config = kubeconfig(tmp_path, proxy.url)
        started = operator_process(tmp_path, config, namespace=system, watch_namespaces=namespace)
        operator = await stack.enter_async_context(kept_running(await stack.enter_async_context(started)))
        await until(operator.leads, LONGEST_SECONDS, "the operator leads")
        proxy.delays.append(Delay(is_late, LATE_SECONDS))
        yield Slow(cluster, namespace, proxy, operator)


async def test_what_is_heard_of_two_seconds_late_is_done_once(slow: Slow, kubectl: Any, submit: Submit) -> None:
    assert submit().returncode == 0
    await slow.reaches("StartingAgentServer")
    await make_agent_server_ready(kubectl, slow.cluster, slow.namespace)
    await slow.reaches("Preflight")
    state = {"terminated": {"exitCode": 0, "message": hrl.PASSED, "finishedAt": "2026-01-01T00:00:00Z"}}
    ended = {"name": "preflight", "state": state, "ready": False, "restartCount": 0, "image": "i", "imageID": "i"}
    status = {"phase": "Succeeded", "containerStatuses": [ended]}
    await set_status(kubectl, slow.namespace, "pod", "quickstart-preflight", status)
    await slow.reaches("StartingTrainer")
    assert submit({"activeDeadlineSeconds": 4711}).returncode == 0  # a pass that nothing of the others' has to wait for
    await slow.sees(generation=2)

    assert slow.count("create", "rayclusters.ray.io") == 1
    assert slow.count("create", "pods") == 1
    (server,) = await slow.cluster.find("Deployment", slow.namespace)
    assert server["metadata"]["generation"] == 1
    (ray,) = await slow.cluster.find("RayCluster", slow.namespace)
    assert ray["metadata"]["generation"] == 1
    events = await slow.cluster.find("Event", slow.namespace, fields="involvedObject.kind=HarborRLJob")
    said = Counter((event["reason"], event["message"]) for event in events)
    assert set(said.values()) == {1}, json.dumps([*said])
    if slow.operator.lives > 1:
        pytest.skip("all but the events was seen: the operator lost its lease, and with it what it was about to say")
    heard = {reason for reason, _ in said}
    assert heard >= {"Starting", "AgentServerReady", "AwaitingPreflight", "Admitted"}, slow.operator.lines()[-40:]
