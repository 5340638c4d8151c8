"""The dashboard as a second listener of the server's process; of its dispatcher, where there are workers."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import uvicorn

from harborrl_agent_server.dashboard.app import create_dashboard
from harborrl_agent_server.dashboard.feed import Feed, Source
from harborrl_agent_server.dashboard.redaction import Redactor, secrets_of
from harborrl_agent_server.dashboard.steps import StepRecords
from harborrl_agent_server.dashboard.trials import TrialReader
from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.listeners import Listener
from harborrl_agent_server.runs import Runs
from harborrl_agent_server.settings import Settings
from harborrl_agent_server.snapshot import Snapshot

LOG = logging.getLogger(__name__)

READERS = 2
"""Threads that read the trials volume: a volume that hangs blocks them, and no trial."""

CLOSE_SECONDS = 2
"""For the last bytes of open pages."""


class RunsSource:
    """The runs of this process."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    async def look(self) -> tuple[str, Snapshot]:
        return self._runs.status(), self._runs.snapshot()


def redactor(settings: Settings) -> Redactor:
    """It is to learn the API keys of requests as they come."""
    return Redactor([settings.admin_secret, *secrets_of(os.environ)])


def bound(settings: Settings) -> socket.socket | None:
    """The dashboard's socket, None without a dashboard; taken early, for uvicorn would end the process over it.

    A worker has none: its dispatcher's shows the trials of all.
    """
    if not settings.dashboard_port or settings.worker is not None:
        return None
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.dashboard_port), family=family)
    except OSError as error:
        raise StartupError(
            f"--dashboard-port {settings.dashboard_port} on {settings.host}: {error.strerror}; choose a free port, or 0"
        ) from error


@contextlib.asynccontextmanager
async def showing(
    source: Source, redact: Redactor, settings: Settings, listening: socket.socket | None, version: str
) -> AsyncIterator[None]:
    """The dashboard is up inside; without a socket nothing of it exists."""
    if listening is None:
        yield
        return
    threads = ThreadPoolExecutor(READERS, thread_name_prefix="dashboard")
    feed = Feed(source, StepRecords(settings.trials_dir.parent).look, threads=threads)
    reader = TrialReader(settings.trials_dir, settings.tasks_dir, redact)
    app = create_dashboard(settings, feed, reader, threads, version)
    listener = Listener(
        uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=CLOSE_SECONDS, lifespan="on")
    )
    serving = asyncio.ensure_future(listener.serve(sockets=[listening]))
    LOG.info("dashboard on http://%s:%d", *listening.getsockname()[:2])
    try:
        yield
    finally:
        feed.close()
        listener.should_exit = True
        await asyncio.wait({serving})
        threads.shutdown(wait=False, cancel_futures=True)
