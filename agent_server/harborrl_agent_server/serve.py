"""The process: what it prints when it starts, and how it ends."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

import uvicorn
from fastapi import FastAPI

from harborrl_agent_server.admission import Admission
from harborrl_agent_server.bounded import finish
from harborrl_agent_server.dashboard.serving import RunsSource, bound, redactor, showing
from harborrl_agent_server.descriptors import raise_limit, too_few
from harborrl_agent_server.doors import doors, held
from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.gateway_serve import entered
from harborrl_agent_server.guard import Beat
from harborrl_agent_server.lending import SLOTS, STARTS, LentSlots, borrowing
from harborrl_agent_server.listeners import Listener
from harborrl_agent_server.runs import Runs
from harborrl_agent_server.scope import SandboxProvider, Standing
from harborrl_agent_server.settings import Budgets, Settings
from harborrl_agent_server.stopping import TRIALS_SHARE, leave

LOG = logging.getLogger(__name__)

QUIET = {"HARBOR_TELEMETRY": "off", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""Neither usage reports nor price lists: a training cluster reaches no host outside."""

CLOSE_SECONDS = 3
"""For uvicorn to send the last answers after the last trial has ended."""

RARE = 5
"""So many times rarer than Python's own default are whole collections of garbage."""

BEAT_SECONDS = 5.0
"""Between two signs of life to process 1, which waits for nine of them."""

LAST_SECONDS = 5.0
"""For what asyncio still awaits at its end: a leaked trial, a thread on a volume that hangs. Then it leaves."""


def ladder(budgets: Budgets) -> str:
    return (
        f"a trial may take {budgets.total():.0f} s after it got its slot: "
        f"start {budgets.environment_start_s:.0f} + "
        f"setup {budgets.agent_setup_s:.0f} + agent {budgets.agent_timeout_s:.0f} + "
        f"verifier {budgets.verifier_s:.0f} + cleanup {budgets.cleanup_s:.0f}; "
        "the client's AGENT_TRIAL_TIMEOUT must be above that"
    )


def too_short(settings: Settings) -> str | None:
    """What is wrong with a client's ceiling below the sum of the budgets; a replaced server is told the ceiling."""
    needed = settings.budgets.total()
    if not 0 < settings.drain_s < needed:
        return None
    return (
        f"clients wait {settings.drain_s:.0f} s (--drain-period), and a trial may take {needed:.0f} s: "
        "lower the time-outs, or raise the ceiling; such trials are refused with QueueTimeout"
    )


def provider_for(settings: Settings) -> SandboxProvider:
    """The provider of the chosen kind; the other kind's libraries stay unloaded."""
    if settings.sandbox == "local":
        from harborrl_agent_server.sandboxes.local import LocalProvider  # noqa: PLC0415 - only the chosen one

        return LocalProvider()
    if settings.sandbox == "docker":
        from harborrl_agent_server.sandboxes.docker_provider import DockerProvider  # noqa: PLC0415 - only the chosen one

        return DockerProvider.from_settings(settings)
    if ":" in settings.sandbox:
        from harborrl_agent_server.sandboxes.hosted_provider import HostedProvider  # noqa: PLC0415 - only the chosen one

        return HostedProvider.from_settings(settings)
    from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider  # noqa: PLC0415 - only the chosen one

    return KubernetesProvider.from_settings(settings)


async def serve(settings: Settings, provider: SandboxProvider, beat: Beat) -> None:
    from harborrl_agent_server.agents.registry import prepare  # noqa: PLC0415 - as below
    from harborrl_agent_server.app import create_app  # noqa: PLC0415 - Harbor reads the environment when it is imported
    from harborrl_agent_server.dispatch.telling import add_telling  # noqa: PLC0415 - as above

    await prepare(settings)
    keep_own_secret(os.environ)
    await provider.open()
    spare_the_collector()
    try:
        async with admitting(settings, beat) as admission:
            door = entered(settings)
            with held(door):
                app = create_app(settings, provider, admission=admission, gateway_door=door)
                if settings.worker is not None:
                    add_telling(app, settings)
                await listen(app, settings, provider.standing)
    finally:
        await finish(provider.close(), settings.grace_s * (1 - TRIALS_SHARE))


@contextlib.asynccontextmanager
async def admitting(settings: Settings, beat: Beat) -> AsyncIterator[Admission | None]:
    """A worker borrows its slots from the dispatcher, which it also gives signs of life, and goes with it."""
    if settings.worker is None:
        async with beating(beat):
            yield None
        return
    async with borrowing(settings.worker.lending_socket, settings.worker.index) as loan, beating(loan.beat):
        orphaned = asyncio.ensure_future(_go_with(loan.lost))
        try:
            slots = LentSlots(loan, SLOTS, settings.max_concurrent)
            yield Admission(slots, LentSlots(loan, STARTS, settings.start_concurrency or sys.maxsize))
        finally:
            orphaned.cancel()


async def _go_with(lost: asyncio.Event) -> None:
    await lost.wait()
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.asynccontextmanager
async def beating(beat: Beat) -> AsyncIterator[None]:
    task = asyncio.create_task(_beat_on(beat))
    try:
        yield
    finally:
        task.cancel()


def spare_the_collector() -> None:
    """What was loaded until here stays, so no collection of garbage has to look through it again.

    A whole collection stops the event loop for tenths of a second while hundreds of trials live; what a trial leaves
    in cycles can wait longer for the next.
    """
    gc.collect()
    gc.freeze()
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, RARE * old)


def keep_own_secret(environ: MutableMapping[str, str]) -> None:
    """A task's `env` may name any variable of this process, and an agent print what it got."""
    environ.pop("HARBOR_ADMIN_SECRET", None)


async def _beat_on(beat: Beat) -> None:
    while True:
        beat()
        await asyncio.sleep(BEAT_SECONDS)


async def listen(app: FastAPI, settings: Settings, standing: Callable[[], Awaitable[Standing]]) -> None:
    """Serve until a signal, then see every run answered before the last connection is closed."""
    dashboard = bound(settings)
    with held(dashboard):
        entrance = None if settings.worker is not None else doors("--port", settings.host, settings.port)
        with held(*(entrance or ())):
            await listen_at(entrance, dashboard, app, settings, standing)


async def listen_at(
    entrance: list[socket.socket] | None,
    dashboard: socket.socket | None,
    app: FastAPI,
    settings: Settings,
    standing: Callable[[], Awaitable[Standing]],
) -> None:
    # uvicorn waits for open requests; ours last hours, so we end them first
    server = Listener(config_of(app, settings))
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stopping.set)
    serving = asyncio.ensure_future(server.serve(entrance))
    await announced(server, serving)
    told = asyncio.ensure_future(stopping.wait())
    if server.started:
        runs: Runs = app.state.runs
        redact = redactor(settings)
        if dashboard is not None:
            runs.learn = redact.learn
        async with showing(RunsSource(runs), redact, settings, dashboard, app.version):
            await asyncio.wait({serving, told}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                await leave(runs, standing, settings)
    server.should_exit = True
    told.cancel()
    await serving
    if not server.started:
        raise StartupError(f"the server did not start on {settings.host}:{settings.port}; the reason is logged above")


def config_of(app: FastAPI, settings: Settings) -> uvicorn.Config:
    common: dict[str, Any] = {
        "log_level": "warning",
        "timeout_graceful_shutdown": CLOSE_SECONDS,
        "lifespan": "on",
        "ws": "none",
    }
    if settings.worker is not None:
        return uvicorn.Config(app, uds=str(settings.worker.socket), **common)
    return uvicorn.Config(app, host=settings.host, port=settings.port, **common)


async def announced(server: Listener, serving: asyncio.Future[None]) -> None:
    """Log the address once it is real; with `--port 0` only the log tells it."""
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.02)
    if server.started and server.config.uds is None:
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        LOG.info("listening on http://%s:%d", host, port)


def set_logging(settings: Settings) -> None:
    who = "" if settings.worker is None else f"worker {settings.worker.index} "
    form = f"%(asctime)s {who}%(levelname)s %(name)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)


def run(settings: Settings, provider: SandboxProvider | None = None, beat: Beat = lambda: None) -> int:
    """`provider`: by default that of the chosen kind; `beat` is called while the event loop turns."""
    os.environ.update(QUIET)
    set_logging(settings)
    logging.getLogger("harbor.utils.logger").propagate = False  # every trial has its own trial.log
    LOG.info("%s", ladder(settings.budgets))
    for said in (too_short(settings), too_few(raise_limit(), settings.max_concurrent)):
        if said:
            LOG.warning("%s", said)
    LOG.info(
        "%d slots, %s sandboxes, tasks in %s, trials in %s",
        settings.max_concurrent,
        settings.sandbox,
        settings.tasks_dir,
        settings.trials_dir,
    )
    asyncio.run(leave_at_last(serve(settings, provider or provider_for(settings), beat)))
    return 0


async def leave_at_last(serving: Coroutine[Any, Any, None]) -> None:
    try:
        await serving
    finally:
        end = threading.Timer(LAST_SECONDS, os._exit, [70])
        end.daemon = True  # it is no reason to stay
        end.start()
