"""The operator as a process of its own, as a pod runs it."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from devcluster.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class OperatorProcess:
    """One candidate."""

    name: str
    process: asyncio.subprocess.Process
    port: int
    log: Path
    started: float
    spawn: Callable[[], Awaitable[asyncio.subprocess.Process]]
    lives: int = 1

    async def ask(self, path: str) -> tuple[int, str]:
        """Status and text; 0 while nothing listens."""
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            async with aiohttp.ClientSession() as client, client.get(url, timeout=aiohttp.ClientTimeout(5)) as answer:
                return answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return 0, ""

    async def leads(self) -> bool:
        return await self.ask("/readyz") == (200, "leader")

    async def is_spare(self) -> bool:
        status, text = await self.ask("/readyz")
        return status == 200 and text.startswith("spare")

    async def metric(self, name: str, **labels: str) -> float:
        """Sum over the series that carry these labels."""
        _, text = await self.ask("/metrics")
        total = 0.0
        for line in text.splitlines():
            found = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
            if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
                total += float(found[2])
        return total

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def exit_code(self, seconds: float) -> int:
        return await asyncio.wait_for(self.process.wait(), seconds)

    @property
    def has_ended(self) -> bool:
        return self.process.returncode is not None

    async def keep(self) -> None:
        """Start it again whenever it ends, as a kubelet does; until cancelled."""
        while True:
            await self.process.wait()
            self.process = await self.spawn()
            self.lives += 1

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()


def kubeconfig(folder: Path, url: str, token: str = "") -> Path:
    """For a client that speaks to the fault proxy."""
    user = {"token": token} if token else {}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / f"kubeconfig-{abs(hash((url, token)))}"
    path.write_text(json.dumps(content))
    return path


@contextlib.asynccontextmanager
async def operator_process(
    folder: Path, config: Path, *, name: str = "op", namespace: str = "harborrl-system", **settings: str
) -> AsyncIterator[OperatorProcess]:
    """Runs until the end of the block at the latest."""
    (port,) = free_ports(1)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT / "operator"),
        "KUBECONFIG": str(config),
        "HARBORRL_PROBE_PORT": str(port),
        "HARBORRL_OPERATOR_NAMESPACE": namespace,
        "POD_NAME": name,
        **{f"HARBORRL_{key.upper()}": value for key, value in settings.items()},
    }
    log = folder / f"{name}.log"
    command = (sys.executable, "-m", "harborrl_operator")

    async def spawn() -> asyncio.subprocess.Process:
        with log.open("a") as stream:
            return await asyncio.create_subprocess_exec(
                *command, env=environment, stdout=stream, stderr=stream, cwd=folder
            )

    running = OperatorProcess(name, await spawn(), port, log, time.monotonic(), spawn)
    try:
        yield running
    finally:
        if running.process.returncode is None:
            running.process.kill()
            await running.process.wait()


@contextlib.asynccontextmanager
async def kept_running(operator: OperatorProcess) -> AsyncIterator[OperatorProcess]:
    """For what must hold whether or not a busy machine cost the operator its lease."""
    keeper = asyncio.create_task(operator.keep())
    try:
        yield operator
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)


async def until(holds: Callable[[], Awaitable[object]], seconds: float, what: str = "") -> float:
    """Poll another program until `holds()` is true; how long that took."""
    begun = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            while not await holds():  # noqa: ASYNC110 - other programs work meanwhile; there is nothing to wait on
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:.0f} s: {what or holds}") from None
    return time.monotonic() - begun
