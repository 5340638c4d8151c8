"""Real HTTP in one process: a served ASGI application, and a session server that answers from a script."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, override

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

CLOSE_SECONDS = 2
"""For a server's last answers."""


class Quiet(uvicorn.Server):
    """Leaves the test runner's signal handlers alone, and ends at once where uvicorn would sleep before each look."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.told_to_go = asyncio.Event()

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield

    @override
    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.told_to_go.wait()

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - no event for it
                    await asyncio.sleep(0.005)
        for task in self.server_state.tasks:
            task.cancel()
        await self.lifespan.shutdown()


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """The application's address while it is up, on a free port."""
    server = Quiet(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    task = asyncio.ensure_future(server.serve())
    while not server.started:
        if task.done():
            task.result()
        await asyncio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.told_to_go.set()
        await task


Script = Callable[[list[dict[str, Any]], int], Any]
"""(messages, number of earlier requests) -> reply text, whole Response, or an awaitable of either."""


class SessionServer:
    """Chat completions by script; keeps every request body."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.instance: str | None = None
        """What its health report names; None: it has no such report."""
        self.looks = 0
        """Questions for its health."""
        self.app = FastAPI()
        self.app.get("/health", response_model=None)(self.health)
        self.app.post("/sessions/{session}/v1/chat/completions", response_model=None)(self.complete)

    async def health(self) -> Response:
        self.looks += 1
        if self.instance is None:
            return Response(status_code=404)
        return JSONResponse({"status": "ok", "session_server_instance_id": self.instance})

    async def complete(self, session: str, request: Request) -> Response:
        body = {**await request.json(), "session": session}
        self.requests.append(body)
        answer = self.script(body["messages"], len(self.requests) - 1)
        if asyncio.iscoroutine(answer):
            answer = await while_asked(request, answer)
        return answer if isinstance(answer, Response) else completion(answer)


async def while_asked(request: Request, answer: Coroutine[Any, Any, Any]) -> Any:
    """What the script says; a client that hangs up cancels it, as an inference engine would be told to stop."""
    saying = asyncio.ensure_future(answer)
    left = asyncio.ensure_future(request.receive())
    await asyncio.wait({saying, left}, return_when=asyncio.FIRST_COMPLETED)
    if not saying.done():
        saying.cancel()
        return Response(status_code=499)
    left.cancel()
    return saying.result()


def completion(text: str, *, finish_reason: str = "stop", total_tokens: int = 10, **extra: Any) -> JSONResponse:
    message = {"role": "assistant", "content": text, **extra}
    usage = {"prompt_tokens": total_tokens - 3, "completion_tokens": 3, "total_tokens": total_tokens}
    return JSONResponse({"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}], "usage": usage})


def replies(*texts: Any) -> Script:
    return lambda _, number: texts[min(number, len(texts) - 1)]


async def eventually(holds: Callable[[], bool], *, limit_s: float = 120) -> None:
    """Returns as soon as something outside this loop's knowledge is so; fails when it never is."""
    async with asyncio.timeout(limit_s):
        while not holds():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.01)
