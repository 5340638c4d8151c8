"""What idle jobs cost: the real operator process against a real API server without nodes.

`PYTHONPATH=operator:. python benchmarks/operator_scale.py` prints a JSON document, and writes it with `--output`. A job
is idle while its agent server, which no kubelet starts, is awaited. `--black-holes` of the jobs bring an agent server
of their own instead, at an address that takes connections and never answers. Measured over `--seconds` once all are
settled: CPU time and memory of the operator, its requests and writes by its own metrics, and the time from an edit of a
spec, of a job that has no black hole, to the status that has seen it.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from devcluster.controlplane import RunningControlPlane, control_plane
from devcluster.gobuild import render_kuberay
from devcluster.ports import free_ports

from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import API_VERSION, KIND

ROOT = Path(__file__).resolve().parents[1]
NAMESPACE = "scale"
CONFIG = {"numRollout": 3, "rolloutBatchSize": 2, "nSamplesPerPrompt": 4, "globalBatchSize": 8}
SPEC: dict[str, Any] = {
    "model": {"path": "model"},
    "data": {"jsonl": "train.jsonl"},
    "trainer": {"engine": "native", "config": CONFIG},
}
WRITES = ("create", "update", "patch", "delete")
LOOK_SECONDS = 2.0
"""Between two points of the time line."""


class Operator:
    """The process, started again when it ends by itself, as a kubelet does; and what it says of itself."""

    def __init__(self, environment: dict[str, str], port: int) -> None:
        self._environment, self._port = environment, port
        self._process: asyncio.subprocess.Process | None = None
        self.starts = 0

    async def run(self) -> None:
        """Until cancelled."""
        command = [sys.executable, "-m", "harborrl_operator"]
        try:
            while True:
                self.starts += 1
                self._process = await asyncio.create_subprocess_exec(
                    *command, env=self._environment, stderr=asyncio.subprocess.DEVNULL
                )
                await self._process.wait()
        finally:
            if self._process is not None and self._process.returncode is None:
                self._process.terminate()
                await self._process.wait()

    async def metrics(self) -> str:
        """Empty while nothing listens."""
        try:
            url = f"http://127.0.0.1:{self._port}/metrics"
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                return await answer.text()
        except aiohttp.ClientError:
            return ""

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        pages = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    @property
    def _pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the operator has not been started")
        return self._process.pid


def sample(text: str, name: str) -> dict[str, float]:
    """Labels, as written, to value."""
    return {labels: float(value) for labels, value in re.findall(rf"^{name}\{{(.*)\}} (\S+)$", text, re.MULTILINE)}


async def until(holds: Callable[[], Awaitable[bool]], seconds: float) -> float:
    begun = time.monotonic()
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 - another program works meanwhile; there is nothing to wait on
            await asyncio.sleep(0.05)
    return time.monotonic() - begun


@dataclass(frozen=True)
class Load:
    """What the operator is given."""

    jobs: int
    black_holes: int
    """The first of the jobs."""
    seconds: float
    edits: int


async def measure(plane: RunningControlPlane, load: Load) -> dict[str, Any]:
    cluster = await Cluster.connect(str(plane.kubeconfig))
    await prepare(cluster)
    (port,) = free_ports(1)
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "operator"),
        "KUBECONFIG": str(plane.kubeconfig),
        "HARBORRL_PROBE_PORT": str(port),
        "HARBORRL_OPERATOR_NAMESPACE": NAMESPACE,
    }
    operator = Operator(environment, port)
    running = asyncio.create_task(operator.run())
    await asyncio.sleep(1)
    try:
        with socket.create_server(("127.0.0.1", 0)) as hole:
            hole.setblocking(False)
            seen = await observe(cluster, operator, load, hole.getsockname()[1])
            return seen | {"connections_to_black_holes": connections(hole), "operator_starts": operator.starts}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await cluster.close()


async def prepare(cluster: Cluster) -> None:
    for name, labels in ((NAMESPACE, {}), ("harborrl-sandboxes", {"harborrl.dev/sandboxes": "true"})):
        await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    claim: dict[str, Any] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    claim["metadata"] = {"name": "harborrl-data", "namespace": NAMESPACE}
    claim["spec"] = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    await cluster.create(claim)
    lease = {"name": "harborrl-operator", "namespace": NAMESPACE}
    await cluster.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": lease})


def connections(hole: socket.socket) -> int:
    """How many wait to be taken."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            hole.accept()[0].close()
            count += 1
    return count


async def observe(cluster: Cluster, operator: Operator, load: Load, hole: int) -> dict[str, Any]:
    begun = time.monotonic()
    line: list[dict[str, float]] = []
    follower = asyncio.create_task(follow(operator, line, begun))
    for index in range(load.jobs):
        meta = {"name": f"j{index}", "namespace": NAMESPACE}
        spec = SPEC | ({"agentServer": {"url": f"http://localhost:{hole}"}} if index < load.black_holes else {})
        await cluster.create({"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec})

    async def settled() -> bool:
        return judged(await operator.metrics()) == load.jobs

    created = time.monotonic() - begun
    await until(settled, 1800)
    all_judged = time.monotonic() - begun
    await asyncio.sleep(35)  # the first pass after the last event
    follower.cancel()
    idle = await rest(operator, load.jobs, load.seconds)
    others = load.jobs - load.black_holes
    latencies = sorted([await edit(cluster, load.black_holes + index % others) for index in range(load.edits)])
    return {
        "jobs": load.jobs,
        "black_holes": load.black_holes,
        "machine": machine(),
        "create_seconds": round(created, 1),
        "all_judged_seconds": round(all_judged, 1),
        **idle,
        "edits": load.edits,
        "spec_change_to_status_seconds": {
            "p50": round(statistics.median(latencies), 2),
            "p99": round(latencies[math.ceil(0.99 * load.edits) - 1], 2),
            "max": round(latencies[-1], 2),
            "all": [round(latency, 2) for latency in latencies],
        },
        "time_line": line,
    }


def judged(metrics: str) -> int:
    """Jobs that were looked at and let in."""
    phases = sample(metrics, "harborrl_jobs")
    return int(sum(phases.get(f'phase="{phase}"', 0) for phase in ("StartingAgentServer", "Preflight")))


async def follow(operator: Operator, line: list[dict[str, float]], begun: float) -> None:
    """Until cancelled: how far the operator has come."""
    while True:
        if text := await operator.metrics():
            point = {
                "seconds": time.monotonic() - begun,
                "judged": judged(text),
                "resident_mib": operator.resident_mib(),
            }
            line.append({name: round(value, 1) for name, value in point.items()})
        await asyncio.sleep(LOOK_SECONDS)


def machine() -> dict[str, float]:
    """On what it ran, and how busy others kept that."""
    return {"cores": os.cpu_count() or 0, "load_15_minutes": round(os.getloadavg()[2], 1)}


async def rest(operator: Operator, jobs: int, seconds: float) -> dict[str, Any]:
    """What the operator does while nothing changes."""
    starts = operator.starts
    before, cpu, begun = await operator.metrics(), operator.cpu_seconds(), time.monotonic()
    await asyncio.sleep(seconds)
    after, passed = await operator.metrics(), time.monotonic() - begun
    if operator.starts != starts:
        raise RuntimeError(
            "the operator ended and was started again: this machine is too busy to say what idling costs"
        )
    calls = {
        labels: value - sample(before, "harborrl_api_calls_total").get(labels, 0)
        for labels, value in sample(after, "harborrl_api_calls_total").items()
    }
    of_jobs = {labels: value for labels, value in calls.items() if 'kind="Lease"' not in labels}
    writes = sum(value for labels, value in of_jobs.items() if re.search(rf'verb="({"|".join(WRITES)})"', labels))
    minutes = passed / 60
    return {
        "idle_seconds": round(passed, 1),
        "cpu_cores": round((operator.cpu_seconds() - cpu) / passed, 3),
        "cpu_milliseconds_per_job_minute": round(1000 * (operator.cpu_seconds() - cpu) / minutes / jobs, 1),
        "resident_mib": round(operator.resident_mib()),
        "reads_per_job_minute": round((sum(of_jobs.values()) - writes) / minutes / jobs, 2),
        "writes_per_job_minute": round(writes / minutes / jobs, 3),
        "lease_writes_per_minute": round(sum(calls.values()) / minutes - sum(of_jobs.values()) / minutes, 1),
    }


async def edit(cluster: Cluster, index: int) -> float:
    """Seconds until the status has seen the new generation."""
    name = f"j{index}"
    job = await cluster.get(KIND, NAMESPACE, name)
    if job is None:
        raise RuntimeError(f"job {name} is gone")
    job["spec"]["activeDeadlineSeconds"] = job["spec"].get("activeDeadlineSeconds", 10**6) + 1
    begun = time.monotonic()
    generation = (await cluster.replace(job))["metadata"]["generation"]

    async def is_seen() -> bool:
        found = await cluster.get(KIND, NAMESPACE, name)
        return bool(found and found.get("status", {}).get("observedGeneration", 0) >= generation)

    await until(is_seen, 120)
    return time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--black-holes", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--edits", type=int, default=100)
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, control_plane(Path(folder) / "cp") as plane:
        install(plane, Path(folder))
        plane.kill("kube-controller-manager")
        load = Load(chosen.jobs, chosen.black_holes, chosen.seconds, chosen.edits)
        result = asyncio.run(measure(plane, load))
    text = document(result)
    if chosen.output:
        chosen.output.write_text(text + "\n")
    sys.stdout.write(text + "\n")


def document(result: dict[str, Any]) -> str:
    """One line a field, long lists included."""
    fields = ",\n".join(f' "{name}": {json.dumps(value)}' for name, value in result.items())
    return f"{{\n{fields}\n}}"


def install(plane: RunningControlPlane, folder: Path) -> None:
    kuberay = folder / "kuberay.yaml"
    render_kuberay(kuberay, plane.kubectl)
    kubectl = [plane.kubectl, "--kubeconfig", str(plane.kubeconfig)]
    crd = str(ROOT / "crds" / "harborrljobs.yaml")
    # The control plane's own range has 254 addresses; each job takes two.
    wide = {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "wide"}}
    text = json.dumps(wide | {"spec": {"cidrs": ["10.158.0.0/16"]}})
    subprocess.run([*kubectl, "create", "--filename", "-"], input=text, text=True, check=True, capture_output=True)
    subprocess.run([*kubectl, "apply", "--server-side", "--filename", str(kuberay)], check=True, capture_output=True)
    subprocess.run([*kubectl, "apply", "--filename", crd], check=True, capture_output=True)
    served = ("crd/harborrljobs.harborrl.dev", "crd/rayclusters.ray.io")
    # kubectl gives up on a CRD whose status is still empty.
    wait = [*kubectl, "wait", "--for=condition=Established", *served]
    while subprocess.run(wait, check=False, capture_output=True).returncode:
        time.sleep(0.2)


if __name__ == "__main__":
    main()
