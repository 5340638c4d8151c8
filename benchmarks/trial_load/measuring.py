"""One measurement: a runner of trials, its load, and what it cost from the first trial to the last."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from benchmarks.trial_load.probe import lag, lines, processor_seconds

ROOT = Path(__file__).resolve().parents[2]
QUIET = {"HARBOR_TELEMETRY": "off", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
LATE_SECONDS = 2.5
"""A line of the probe is a second old when it is written, and later on a busy machine."""


@dataclass(frozen=True)
class Load:
    tasks: Sequence[Path]
    trials: int
    concurrent: int
    turns: int
    session_url: str

    @property
    def attempts(self) -> int:
        return self.trials // len(self.tasks)


@contextlib.asynccontextmanager
async def program(*argv: str, **kwargs: Any) -> AsyncIterator[Process]:
    """A Python program of ours, told to leave at the end."""
    ours = (str(ROOT / part) for part in ("agent_server", "tests", "."))
    path = os.pathsep.join([*ours, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **QUIET, "PYTHONPATH": path, **kwargs.pop("env", {})}
    process = await asyncio.create_subprocess_exec(sys.executable, *argv, env=environment, **kwargs)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


@contextlib.asynccontextmanager
async def session_server(turns: int, seconds: float) -> AsyncIterator[str]:
    async with program(
        "-m", "benchmarks.trial_load.sessions", str(turns), str(seconds), stdin=PIPE, stdout=PIPE
    ) as one:
        if one.stdout is None:
            raise RuntimeError("no pipe")
        yield (await one.stdout.readline()).decode().strip()


async def of_server(load: Load, folder: Path, flags: Sequence[str]) -> dict[str, Any]:
    """Our server, asked over HTTP as a trainer asks."""
    log, probe = folder / "log", folder / "probe"
    argv = ["-m", "benchmarks.trial_load.server", str(probe), "--sandbox", "local", "--port", "0", *flags]
    argv += ["--max-concurrent", str(load.concurrent), "--trials-dir", str(folder / "trials")]
    environment = {"HARBOR_TASKS_DIR": str(load.tasks[0].parent)}
    with log.open("wb") as stderr:
        async with program(*argv, stderr=stderr, env=environment) as server:
            url = await listening(log, server)
            return await measured(server, probe, load, lambda: asked(url, load))


async def of_harbor(load: Load, folder: Path) -> dict[str, Any]:
    """Harbor's job of the same trials."""
    probe = folder / "probe"
    reading, writing = os.pipe()
    config = {
        "tasks": [str(task) for task in load.tasks],
        "folder": str(folder / "jobs"),
        "attempts": load.attempts,
        "concurrent": load.concurrent,
        "session_url": load.session_url,
    }
    argv = ["-m", "benchmarks.trial_load.harbor_job", str(probe), str(writing), json.dumps(config)]
    with (folder / "log").open("wb") as log:
        async with program(*argv, stdin=PIPE, stdout=log, stderr=log, pass_fds=(writing,)) as job:
            os.close(writing)
            with os.fdopen(reading) as said:
                await asyncio.to_thread(said.readline)

                async def ended() -> int:
                    await told(job)
                    return int((await asyncio.to_thread(said.readline)).split()[1])

                return await measured(job, probe, load, ended)


async def measured(process: Process, probe: Path, load: Load, work: Callable[[], Awaitable[int]]) -> dict[str, Any]:
    """What the process spent and held while the work was done; `work` returns the trials with reward 1."""
    await asyncio.sleep(LATE_SECONDS)
    before = processor_seconds(process.pid)
    at_rest, begun = lines(probe, 0, time.monotonic())[-1], time.monotonic()
    solved = await work()
    ended = time.monotonic()
    own, sandboxes = (now - then for now, then in zip(processor_seconds(process.pid), before, strict=True))
    await asyncio.sleep(LATE_SECONDS)
    seen, after = lines(probe, begun, ended), lines(probe, 0, time.monotonic())[-1]
    peak = max(line["resident_mib"] for line in seen)
    return {
        "trials": load.trials,
        "solved": solved,
        "seconds": round(ended - begun, 1),
        "trials_per_minute": round(60 * load.trials / (ended - begun), 1),
        "processor_seconds_per_trial": round(own / load.trials, 4),
        "sandbox_processor_seconds_per_trial": round(sandboxes / load.trials, 4),
        "loop_lag_ms": lag(seen),
        "resident_mib": {"at_rest": at_rest["resident_mib"], "peak": peak, "after": after["resident_mib"]},
        "mib_per_concurrent_trial": round((peak - at_rest["resident_mib"]) / load.concurrent, 3),
        **{
            name: {"at_rest": at_rest[name], "peak": max(line[name] for line in seen), "after": after[name]}
            for name in ("descriptors", "threads", "loggers")
        },
        "time_line": [line_of(line, begun) for line in seen],
    }


def line_of(line: dict[str, Any], begun: float) -> dict[str, float]:
    held = {name: line[name] for name in ("resident_mib", "descriptors", "threads", "loggers")}
    return {"seconds": round(line["at"] - begun, 1), "worst_lag_ms": round(1000 * max(line["lags"]), 1), **held}


async def told(process: Process) -> None:
    if process.stdin is None:
        raise RuntimeError("no pipe")
    process.stdin.write(b"go\n")
    await process.stdin.drain()


async def listening(log: Path, server: Process) -> str:
    while "listening on " not in log.read_text():  # noqa: ASYNC240 - another process writes it
        if server.returncode is not None:
            raise RuntimeError(log.read_text())  # noqa: ASYNC240 - same
        await asyncio.sleep(0.1)
    return log.read_text().split("listening on ", 1)[1].split()[0]  # noqa: ASYNC240 - same


async def asked(url: str, load: Load) -> int:
    """The trials with reward 1, of all that were asked for, so many at once as there are slots."""
    room = asyncio.Semaphore(load.concurrent)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as client:

        async def one(number: int) -> bool:
            task = load.tasks[number % len(load.tasks)].name
            body = {"instance_id": task, "base_url": f"{load.session_url}/sessions/{number}/v1", "agent_name": "bash"}
            async with room, client.post(f"{url}/run", json=body) as answer:
                return bool((await answer.json())["reward"] == 1.0)

        return sum(await asyncio.gather(*(one(number) for number in range(load.trials))))
