"""What a measured process tells of itself: how late its event loop wakes, what it holds. Its cost is seen outside."""

import asyncio
import json
import logging
import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

PERIOD_SECONDS = 0.01
"""Between two wakings."""

LINE_SECONDS = 1.0
"""Between two lines of the log."""


class Probe:
    """Appends a line of JSON a second to a file, from inside the event loop of the process. Called, it begins once."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._task: asyncio.Task[None] | None = None

    def __call__(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        lags: list[float] = []
        told = loop.time()
        while True:
            due = loop.time() + PERIOD_SECONDS
            await asyncio.sleep(PERIOD_SECONDS)
            lags.append(max(loop.time() - due, 0.0))
            if loop.time() - told >= LINE_SECONDS:
                self._tell(lags)
                lags, told = [], loop.time()

    def _tell(self, lags: list[float]) -> None:
        line = {"at": time.monotonic(), "lags": [round(lag, 4) for lag in lags], **held()}
        with self._log.open("a") as log:
            log.write(json.dumps(line) + "\n")


def held() -> dict[str, float]:
    """What this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "resident_mib": round(pages * resource.getpagesize() / 2**20, 1),
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - thousands of names, and no Path of them wanted
        "threads": threading.active_count(),
        "loggers": len(logging.Logger.manager.loggerDict),
    }


def lines(log: Path, begun: float, ended: float) -> list[dict[str, Any]]:
    """Those of a span of the monotonic clock, which all processes share."""
    found = [json.loads(line) for line in log.read_text().splitlines()]
    return [line for line in found if begun <= line["at"] <= ended]


def lag(measured: list[dict[str, Any]]) -> dict[str, float]:
    """Milliseconds that an event arriving at any moment waits: a stall counts for all moments it covers."""
    waits: list[float] = []
    for late in (late for line in measured for late in line["lags"]):
        steps = int(late / PERIOD_SECONDS)
        waits.extend(late - step * PERIOD_SECONDS for step in range(steps + 1))
    waits.sort()
    chosen = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {
        name: round(1000 * waits[min(int(share * len(waits)), len(waits) - 1)], 1) for name, share in chosen.items()
    }


def processor_seconds(pid: int) -> tuple[float, float]:
    """User and system time: of a process itself, and of its children, those that live and those that have ended."""
    own, ended = spent(pid)
    living = [spent(int(child)) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return own, ended + sum(map(sum, living))


def spent(pid: int) -> tuple[float, float]:
    """Of a process itself, and of its children that have ended; nothing of one that has gone meanwhile."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0, 0.0
    tick = os.sysconf("SC_CLK_TCK")
    return (int(fields[11]) + int(fields[12])) / tick, (int(fields[13]) + int(fields[14])) / tick
