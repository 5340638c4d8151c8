"""The dispatcher's process: opens the public port when its workers are up, and leaves when they have left."""

import asyncio
import contextlib
import logging
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import httpx
from fastapi import FastAPI

from harborrl_agent_server.admission import Slots, Starts
from harborrl_agent_server.dashboard.serving import bound, redactor, showing
from harborrl_agent_server.descriptors import allowed, raise_limit, too_few
from harborrl_agent_server.dispatch import remains
from harborrl_agent_server.dispatch.app import create_app
from harborrl_agent_server.dispatch.gateway import gateway_app
from harborrl_agent_server.dispatch.watching import WorkersSource
from harborrl_agent_server.dispatch.workers import Workers
from harborrl_agent_server.doors import doors, held
from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.gateway import address_of, opened, serving
from harborrl_agent_server.gateway_connections import Connections, Limits
from harborrl_agent_server.gateway_serve import listening_host, needed
from harborrl_agent_server.guard import Beat
from harborrl_agent_server.lending import SLOTS, STARTS, Lender
from harborrl_agent_server.listeners import Listener
from harborrl_agent_server.metrics import Metrics
from harborrl_agent_server.peers import Peers
from harborrl_agent_server.serve import announced, beating, config_of, leave_at_last, set_logging
from harborrl_agent_server.settings import GATEWAY, Settings, Worker

LOG = logging.getLogger(__name__)


def dispatch(settings: Settings, argv: Sequence[str], environ: Mapping[str, str], beat: Beat) -> int:
    """`argv` and `environ` are what each worker is started with."""
    set_logging(settings)
    LOG.info("%d workers share %d slots", settings.workers, settings.max_concurrent)
    if said := too_few(raise_limit(), settings.max_concurrent):
        LOG.warning("%s", said)
    remains.sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=remains.PREFIX) as folder:
        asyncio.run(leave_at_last(serve(settings, Path(folder), argv, environ, beat)))
    return 0


async def serve(settings: Settings, folder: Path, argv: Sequence[str], environ: Mapping[str, str], beat: Beat) -> None:
    stopping = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stopping.set)
    redact = redactor(settings)
    async with contextlib.AsyncExitStack() as stack:
        dashboard = bound(settings)
        stack.enter_context(held(dashboard))
        entrance = doors("--port", settings.host, settings.port)
        stack.enter_context(held(*entrance))
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
        await stack.enter_async_context(beating(beat))
        listener = opened(listening_host(settings), settings.gateway_port) if needed(settings) else None
        stack.enter_context(held(listener))
        address = address_of(listener, settings.gateway_host) if listener else ""
        workers = Workers(settings.workers, folder, argv, {**environ, GATEWAY: address})
        stack.push_async_callback(workers.close)
        slots = await stack.enter_async_context(lent(settings, workers, folder))
        metrics = await stack.enter_async_context(timed())
        if listener is not None:
            connections = Connections(Limits.fitting(allowed()), metrics.refuse)
            await stack.enter_async_context(serving(gateway_app(workers, connections), listener, connections))
        await started(workers, stopping)
        if not stopping.is_set():
            peers, source = Peers(settings, client), WorkersSource(workers, slots, settings)
            app = create_app(settings, workers, peers, slots=slots, metrics=metrics, learn=redact.learn)
            show = showing(source, redact, settings, dashboard, app.version)
            await listen(settings, app, workers, stopping, show=show, entrance=entrance)


@contextlib.asynccontextmanager
async def lent(settings: Settings, workers: Workers, folder: Path) -> AsyncIterator[Slots]:
    """The pod's slots for trials."""
    pools = {SLOTS: Slots(settings.max_concurrent), STARTS: Starts(settings.start_concurrency)}
    server = await asyncio.start_unix_server(Lender(pools, workers.heard), Worker(0, folder).lending_socket)
    try:
        yield pools[SLOTS]
    finally:
        server.close()


@contextlib.asynccontextmanager
async def timed() -> AsyncIterator[Metrics]:
    """How late this process' own event loop is: every request goes through it."""
    metrics = Metrics()
    watching = asyncio.ensure_future(metrics.watch_loop())
    try:
        yield metrics
    finally:
        watching.cancel()


async def started(workers: Workers, stopping: asyncio.Event) -> None:
    """Returns when all workers are up, or when this process is told to stop before."""
    told = asyncio.ensure_future(stopping.wait())
    starting = asyncio.ensure_future(workers.start())
    await asyncio.wait({starting, told}, return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if starting.done():
        starting.result()
    else:
        starting.cancel()


async def listen(
    settings: Settings,
    app: FastAPI,
    workers: Workers,
    stopping: asyncio.Event,
    *,
    show: contextlib.AbstractAsyncContextManager[None],
    entrance: list[socket.socket],
) -> None:
    """Serve until a signal; then the workers answer every run, and the last connection is closed after them."""
    server = Listener(config_of(app, settings))
    serving = asyncio.ensure_future(server.serve(entrance))
    watching = asyncio.ensure_future(workers.watch())
    told = asyncio.ensure_future(stopping.wait())
    await announced(server, serving)
    if server.started:
        async with show:
            await asyncio.wait({serving, told}, return_when=asyncio.FIRST_COMPLETED)
            await workers.leave()
    server.should_exit = True
    told.cancel()
    await serving
    watching.cancel()
    if not server.started:
        raise StartupError(f"the server did not start on {settings.host}:{settings.port}; the reason is logged above")
