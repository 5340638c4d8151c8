"""An agent server that breaks as it is told: the fault is the instance id of the trial.

It plays its trials against the session server of the request, over HTTP, as an agent would. The model is told in the
last user message how its answer shall end: `stop`, `length`, or `abort` as from an inference engine that gave it up.
"""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from support.raw_http import Answer, Asked

NAN = float("nan")
TLS = ssl.create_default_context()
"""Made once: a client without one spends most of a small test on reading certificates."""
GOOD = {"reward": 0.5, "exit_status": "Submitted", "eval_report": {"reward": 0.5}, "agent_metrics": {"turns": 2}}
LOST = {"exit_status": "SandboxLost", "infra_failure": True, "message": "node gone"}


@dataclass
class FaultyAgents:
    capacity: int = 1000
    health: dict[str, Any] | None = None
    """Replaces the health report."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    flushed: list[dict[str, Any]] = field(default_factory=list)
    authorization: list[str] = field(default_factory=list)
    in_flight: int = 0
    widest: int = 0
    left: int = 0
    """Trials whose client closed the connection before the answer."""
    departed: asyncio.Event = field(default_factory=asyncio.Event)
    """There was one."""
    together: int = 0
    """No trial goes on before so many are in flight at once."""
    assembled: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    """A trial has begun."""
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    """A flush has come."""

    async def handle(self, asked: Asked) -> Answer | None:
        if asked.path == "/health":
            return Answer.of(self.health or {"status": "ok", "capacity": self.capacity, "in_flight": self.in_flight})
        if asked.path == "/flush":
            self.flushed.append(asked.body)
            self.authorization.append(asked.headers.get("authorization", ""))
            self.cancelled.set()
            return Answer.of({"cancelled": self.in_flight, "pending": 0, "ids": []})
        if asked.path in {"/workers", "/list_workers"}:  # the router's, which Miles asks whom to abort
            return Answer.of({"workers": [], "urls": []})
        return await self._run(asked)

    async def _run(self, asked: Asked) -> Answer | None:
        self.requests.append(asked.body)
        self.in_flight += 1
        self.widest = max(self.widest, self.in_flight)
        self.started.set()
        if self.widest >= self.together:
            self.assembled.set()
        await self.assembled.wait()
        try:
            return await FAULTS[asked.body["instance_id"]](self, asked)
        finally:
            self.in_flight -= 1
            if asked.gone.is_set():
                self.left += 1
                self.departed.set()

    def runs_of(self, instance: str) -> int:
        return sum(request["instance_id"] == instance for request in self.requests)


async def turns(asked: Asked, *endings: str) -> list[int]:
    """One model call for each ending; returns the HTTP statuses."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are an agent."}]
    statuses = []
    async with httpx.AsyncClient(timeout=300, trust_env=False, verify=TLS) as http:
        for ending in endings:
            messages.append({"role": "user", "content": f"say {ending}"})
            response = await http.post(
                f"{asked.body['base_url']}/chat/completions",
                json={"model": "model", "messages": messages, **asked.body["sampling_params"]},
            )
            statuses.append(response.status_code)
            if response.status_code != 200:
                break
            messages.append(response.json()["choices"][0]["message"])
    return statuses


def saying(*endings: str, **changes: Any) -> Callable[[FaultyAgents, Asked], Awaitable[Answer | None]]:
    """Plays the turns and answers as GOOD with changes."""

    async def answer(_: FaultyAgents, asked: Asked) -> Answer | None:
        await turns(asked, *endings)
        return Answer.of({**GOOD, **changes})

    return answer


async def never(_: FaultyAgents, asked: Asked) -> Answer | None:
    await turns(asked, "stop")
    await asked.gone.wait()
    return None


async def slow_headers(_: FaultyAgents, asked: Asked) -> Answer | None:
    await turns(asked, "stop")
    asked.writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Slow: ")
    await asked.gone.wait()
    return None


async def slow_body(_: FaultyAgents, asked: Asked) -> Answer | None:
    await turns(asked, "stop")
    asked.writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"reward": 1.0, ')
    await asked.gone.wait()
    return None


async def late_but_whole(_: FaultyAgents, asked: Asked) -> Answer | None:
    """Byte by byte, and in time."""
    await turns(asked, "stop", "stop")
    body = json.dumps(GOOD).encode()
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body):
        asked.writer.write(bytes([byte]))
        await asked.writer.drain()
        await asyncio.sleep(0)
    return None


async def reset(_: FaultyAgents, asked: Asked) -> Answer | None:
    await turns(asked, "stop")
    connection: socket.socket = asked.writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return None


async def cut_short(_: FaultyAgents, asked: Asked) -> Answer | None:
    await turns(asked, "stop")
    asked.writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"reward": 1.0}')
    await asked.writer.drain()
    return None


async def no_http(_: FaultyAgents, asked: Asked) -> Answer | None:
    asked.writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")
    await asked.writer.drain()
    return None


async def http_500(_: FaultyAgents, asked: Asked) -> Answer | None:
    await turns(asked, "stop")
    return Answer.of({"detail": "boom"}, status=500)


async def garbage(_: FaultyAgents, asked: Asked) -> Answer | None:
    await turns(asked, "stop")
    return Answer(200, b"<html>it works</html>")


async def nan_reward(_: FaultyAgents, asked: Asked) -> Answer | None:
    await turns(asked, "stop")
    return Answer.of({**GOOD, "reward": NAN, "eval_report": {"reward": NAN}, "agent_metrics": {"eval_time": NAN}})


async def lost_once(agents: FaultyAgents, asked: Asked) -> Answer | None:
    await turns(asked, "stop")
    return Answer.of(LOST if agents.runs_of(asked.body["instance_id"]) == 1 else GOOD)


async def leaving_once(agents: FaultyAgents, asked: Asked) -> Answer | None:
    """503: a server that is told to stop starts nothing."""
    if agents.runs_of(asked.body["instance_id"]) == 1:
        return Answer.of({"detail": "draining"}, status=503, header="X-HarborRL-Trial: not-started")
    await turns(asked, "stop", "stop")
    return Answer.of(GOOD)


async def session_lost(agents: FaultyAgents, asked: Asked) -> Answer | None:
    """The session server has been restarted under the first run: it knows no session any more."""
    if agents.runs_of(asked.body["instance_id"]) > 1:
        await turns(asked, "stop", "stop")
        return Answer.of(GOOD)
    async with httpx.AsyncClient(timeout=300, trust_env=False, verify=TLS) as http:
        await http.delete(asked.body["base_url"].removesuffix("/v1"))
    if await turns(asked, "stop") != [404]:
        raise AssertionError("the session server still knows the session")
    return Answer.of({"exit_status": "ModelEndpointFailed", "infra_failure": True, "message": "404: no session"})


async def after_cancel(agents: FaultyAgents, asked: Asked) -> Answer | None:
    """Ends well, and just too late: after everybody was told to stop."""
    await turns(asked, "stop")
    await agents.cancelled.wait()
    return Answer.of({**GOOD, "reward": 1.0})


FAULTS: dict[str, Callable[[FaultyAgents, Asked], Awaitable[Answer | None]]] = {
    "good": saying("stop", "stop"),
    "zero": saying("stop", reward=0.0, eval_report={"reward": 0.0}),
    "timeout": never,
    "slow-headers": slow_headers,
    "slow-body": slow_body,
    "late-but-whole": late_but_whole,
    "reset": reset,
    "cut-short": cut_short,
    "no-http": no_http,
    "http-500": http_500,
    "garbage": garbage,
    "no-status": saying("stop", exit_status=None),
    "null-reward": saying("stop", reward=None),
    "nan-reward": nan_reward,
    "text-reward": saying("stop", reward="1.0"),
    "huge-reward": saying("stop", reward=1e300),
    "empty-report": saying("stop", reward=0.0, eval_report={}),
    "unknown-status": saying("stop", exit_status="Error: KeyError", reward=0.0),
    "no-turns": saying(reward=0.0, eval_report={"reward": 0.0}, agent_metrics={}),
    "agent-error": saying("stop", exit_status="AgentError", reward=0.0, eval_report={"reward": 0.0}),
    "time-limit": saying("stop", exit_status="TimeLimitExceeded", reward=0.25, eval_report={"reward": 0.25}),
    "time-limit-ungraded": saying("stop", exit_status="TimeLimitExceeded", reward=0.0, eval_report={}),
    "length-limit": saying(
        "stop", exit_status="SequenceLengthLimitExceeded", reward=0.25, eval_report={"reward": 0.25}
    ),
    "cut-by-length": saying("stop", "length"),
    "generation-aborted": saying("stop", "abort"),
    "generation-aborted-midway": saying("stop", "abort", "stop"),
    "lost": saying("stop", **LOST),
    "lost-with-reward": saying("stop", exit_status="SandboxLost", infra_failure=True, reward=1.0),
    "lost-once": lost_once,
    "task-missing": saying(exit_status="TaskNotFound", infra_failure=True, message="no task 'x'"),
    "cancelled": saying("stop", exit_status="Aborted", infra_failure=True, reward=1.0),
    "leaving-once": leaving_once,
    "session-lost": session_lost,
    "after-cancel": after_cancel,
}
