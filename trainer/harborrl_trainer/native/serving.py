"""Runs the session server inside the driver's event loop."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import override

import uvicorn
from fastapi import FastAPI

from harborrl_trainer.errors import InfrastructureError


class _Server(uvicorn.Server):
    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The driver's own handlers stay: SIGTERM means save first, not stop serving."""
        yield


@contextlib.asynccontextmanager
async def serving(app: FastAPI, port: int) -> AsyncIterator[int]:
    """Serves on all interfaces; yields the port, which is a free one where 0 was asked for."""
    listener = _listen(port)
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=5, lifespan="off")
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("0.0.0.0", port))  # noqa: S104 - the agent server's pods must reach it
    except OSError as error:
        listener.close()
        raise InfrastructureError(
            f"session server: cannot listen on port {port} ({error.strerror}); another driver on this node still runs, "
            "or trainer.ports.session is taken"
        ) from error
    return listener
