"""The agent server as a process that is killed and started again: same name, same port, same folder of trials."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from asyncio.subprocess import Process
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from devcluster.ports import free_ports

from support.agent_http import eventually

ROOT = Path(__file__).resolve().parents[2]
RESOURCES = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}}
AGENT = {"systemPrompt": "", "examples": [], "commandTimeoutSeconds": 100}
BUDGETS = {"environment-start": 90, "agent-setup": 30, "agent": 120, "verifier": 60, "cleanup": 20}

ENDED = re.compile(
    r"\.runs run (?P<id>[0-9a-f]{12}) .*?: (?P<status>[A-Za-z]+), (no reward|reward (?P<reward>[0-9.]+)) "
)
"""The line that a server writes of each run that is over."""


@dataclass(frozen=True)
class Ended:
    """A run that is over, as the server's log tells it."""

    run: str
    status: str
    reward: float


@dataclass
class Lives:
    """One server after the other."""

    folder: Path
    namespace: str
    image: str
    slots: int
    port: int = field(default_factory=lambda: free_ports(1)[0])
    logs: list[Path] = field(default_factory=list)
    up: asyncio.Event = field(default_factory=asyncio.Event)
    _process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def number(self) -> int:
        return len(self.logs)

    async def start(self) -> None:
        log = self.folder / f"life-{self.number + 1}.log"
        env = {
            **os.environ,
            "HARBOR_TASKS_DIR": str(self.folder / "tasks"),
            "PYTHONPATH": str(ROOT / "agent_server"),
            "POD_NAME": f"agent-{self.namespace}",
        }
        command = (sys.executable, "-m", "harborrl_agent_server", *self._flags())
        with log.open("wb") as stderr:
            self._process = await asyncio.create_subprocess_exec(*command, env=env, stderr=stderr)
        self.logs.append(log)
        await eventually(lambda: "listening on " in log.read_text() or self.exit_code is not None)
        assert self.exit_code is None, log.read_text()[-2000:]
        self.up.set()

    def _flags(self) -> list[str]:
        return [
            *(f"--{name}-timeout={seconds}" for name, seconds in BUDGETS.items()),
            f"--port={self.port}",
            f"--max-concurrent={self.slots}",
            f"--trials-dir={self.folder / 'trials'}",
            f"--sandbox-namespace={self.namespace}",
            f"--sandbox-image={self.image}",
            f"--sandbox-config={json.dumps({'defaults': RESOURCES})}",
            f"--agent-kwargs={json.dumps(AGENT)}",
            "--allowed-model-hosts=127.0.0.0/8",
            "--heartbeat=5",
        ]

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    async def kill(self) -> None:
        """Without any notice."""
        await self._end(signal.SIGKILL, 10)

    async def stop(self) -> int | None:
        """The exit code."""
        await self._end(signal.SIGTERM, 60)
        return self.exit_code

    async def _end(self, sign: signal.Signals, limit_s: float) -> None:
        self.up.clear()
        if self._process is not None and self.exit_code is None:
            self._process.send_signal(sign)
            async with asyncio.timeout(limit_s):
                await self._process.wait()

    async def settled(self, limit_s: float) -> dict[str, Any]:
        """Its health once nothing of an ended trial is left any more, or as it was last seen."""
        deadline = time.monotonic() + limit_s
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            while True:
                health: dict[str, Any] = (await client.get(f"{self.url}/health")).json()
                if health["status"] == "ok" or time.monotonic() > deadline:
                    return health
                await asyncio.sleep(0.5)

    def ended(self, life: int) -> list[Ended]:
        """Runs that came to their end in this life, the first of which is 1."""
        found = ENDED.finditer(self.logs[life - 1].read_text())
        return [Ended(one["id"], one["status"], float(one["reward"] or 0)) for one in found]
