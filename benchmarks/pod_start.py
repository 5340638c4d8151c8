"""From a trial's request to its first command in a sandbox pod: cold, and from the warm pool. Needs a cluster.

    PYTHONPATH=agent_server:tests KUBECONFIG=... python -m benchmarks.pod_start [--trials 30] [--out FILE]

A server in a process of its own, one trial at a time. Each trial's clock starts before its request is sent. `asks` is
when its agent asks the model for the first time, `acts` when the agent asks again because its first command has run:
the exec, and what the command said, are within it. `acts` is judged. The image has to be on the node.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from harborrl_agent_server.sandboxes.cluster import Cluster, KubeError
from support.agent_http import SessionServer, serving
from support.agent_tasks import write_task

BOUNDS_MS = {"cold": 1500.0, "warm": 250.0}
"""Of the median of `acts`."""

CONFIGS: dict[str, dict[str, Any]] = {"cold": {}, "warm": {"warmPool": {"size": 2, "images": 1}}}

COMMAND = "```sh\necho hello >/app/greeting.txt\n```"


@dataclass
class Moments:
    """When the model was asked, by session."""

    asked: dict[str, list[float]] = field(default_factory=dict)
    server: SessionServer = field(init=False)

    def __post_init__(self) -> None:
        self.server = SessionServer(self._reply)

    def _reply(self, _: list[dict[str, Any]], number: int) -> str:
        moments = self.asked.setdefault(self.server.requests[number]["session"], [])
        moments.append(time.monotonic())
        return COMMAND if len(moments) == 1 else "TASK_DONE"


async def trial(client: httpx.AsyncClient, url: str, sessions: str, moments: Moments) -> dict[str, Any]:
    """Milliseconds of one trial to its two moments, and of its phases."""
    session = uuid4().hex
    body = {"instance_id": "write-greeting", "agent_name": "bash", "base_url": f"{sessions}/sessions/{session}/v1"}
    begun = time.monotonic()
    answer = (await client.post(f"{url}/run", json=body)).json()
    if len(moments.asked.get(session, ())) < 2:
        raise SystemExit(f"a trial's first command did not run: {answer['exit_status']}, {answer.get('message')}")
    asks, acts = (1000 * (moment - begun) for moment in moments.asked[session][:2])
    phases = {name: 1000 * spent for name, spent in answer["phase_seconds"].items()}
    return {"asks": asks, "acts": acts, "phases": phases}


async def until_warm(client: httpx.AsyncClient, url: str) -> None:
    """The next trial of a pool that is being refilled would start cold, and measure that."""
    async with asyncio.timeout(120):
        while (await client.get(f"{url}/health")).json()["warm"]["ready"] == 0:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.05)


async def measure(kind: str, count: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_task(folder / "tasks")
        moments = Moments()
        sessions = await stack.enter_async_context(serving(moments.server.app))
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=600))
        server, url = await started(folder, options, CONFIGS[kind])
        stack.push_async_callback(stopped, server)
        await trial(client, url, sessions, moments)  # the first one loads Harbor, and begins the pool
        found = []
        for _ in range(count):
            if kind == "warm":
                await until_warm(client, url)
            found.append(await trial(client, url, sessions, moments))
        return found


async def started(folder: Path, options: argparse.Namespace, config: Mapping[str, Any]) -> tuple[Any, str]:
    flags = ["--port", "0", "--trials-dir", str(folder / "trials"), "--sandbox-namespace", options.namespace]
    flags += ["--sandbox-image", options.image, "--sandbox-config", json.dumps(config)]
    flags += ["--allowed-model-hosts", "127.0.0.0/8"]
    env = {**os.environ, "HARBOR_TASKS_DIR": str(folder / "tasks")}
    argv = (sys.executable, "-m", "harborrl_agent_server", *flags)
    server = await asyncio.create_subprocess_exec(*argv, env=env, stderr=asyncio.subprocess.PIPE)
    if server.stderr is None:
        raise RuntimeError("the server has no log")
    said = b""
    async for line in server.stderr:
        said += line
        if b"listening on " in line:
            asyncio.ensure_future(server.stderr.read())  # noqa: RUF006 - it must not wait for a reader
            return server, line.split(b"listening on ")[1].decode().split()[0]
    raise SystemExit(f"the server did not start:\n{said.decode()}")


async def stopped(server: asyncio.subprocess.Process) -> None:
    server.terminate()
    await server.wait()


async def namespace_made(name: str) -> None:
    cluster = await Cluster.connect()
    try:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await cluster.request("POST", "/api/v1/namespaces", body=body)
    except KubeError as error:
        if error.status != 409:
            raise
    finally:
        await cluster.close()


def summary(trials: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Milliseconds, rounded: median, 99th percentile and extremes; medians of the phases."""
    figures: dict[str, Any] = {"trials": len(trials)}
    for name in ("asks", "acts"):
        values = sorted(one[name] for one in trials)
        p99 = values[min(len(values) - 1, int(0.99 * len(values)))]
        spread = {"p50": statistics.median(values), "p99": p99, "best": values[0], "worst": values[-1]}
        figures[name] = {key: round(value, 1) for key, value in spread.items()}
    names = dict.fromkeys(name for one in trials for name in one["phases"])
    figures["phases_p50"] = {
        name: round(statistics.median(one["phases"].get(name, 0.0) for one in trials), 1) for name in names
    }
    return figures


def missed(figures: Mapping[str, Any]) -> list[str]:
    return [
        f"{kind}: the median to the first command was {figures[kind]['acts']['p50']} ms, the bound is {bound} ms"
        for kind, bound in BOUNDS_MS.items()
        if kind in figures and figures[kind]["acts"]["p50"] >= bound
    ]


def table(figures: Mapping[str, Any]) -> str:
    lines = [f"{'':6}{'trials':>8}{'p50 ms':>10}{'p99 ms':>10}{'best':>10}{'worst':>10}"]
    for kind in (kind for kind in CONFIGS if kind in figures):
        acts = figures[kind]["acts"]
        cells = "".join(f"{acts[name]:>10.0f}" for name in ("p50", "p99", "best", "worst"))
        lines.append(f"{kind:6}{figures[kind]['trials']:>8}{cells}")
    return "\n".join(lines)


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--trials", type=int, default=30)
    flags.add_argument("--kinds", default="cold,warm")
    flags.add_argument("--namespace", default="harborrl-pod-start")
    flags.add_argument("--image", default="localhost/devcluster/busybox:1")
    flags.add_argument("--out", type=Path)
    options = flags.parse_args()
    asyncio.run(namespace_made(options.namespace))
    figures: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    for kind in options.kinds.split(","):
        figures[kind] = summary(asyncio.run(measure(kind, options.trials, options)))
    figures["load_after"] = os.getloadavg()[0]
    text = json.dumps(figures, indent=1)
    if options.out is not None:
        options.out.write_text(f"{text}\n")
    print(text, table(figures), sep="\n")
    if found := missed(figures):
        raise SystemExit("\n".join(found))


if __name__ == "__main__":
    main()
