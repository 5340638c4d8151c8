"""Routes only: /run, /flush, /health, /ready, /metrics."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, version

import httpx
from fastapi import FastAPI, HTTPException, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from harborrl_agent_server.admission import Admission
from harborrl_agent_server.answering import TrialResponse
from harborrl_agent_server.bearer import may_act
from harborrl_agent_server.bounded import alone
from harborrl_agent_server.contract import FlushRequest, FlushResponse, Health, RunRequest, Warm
from harborrl_agent_server.gateway import Gateway
from harborrl_agent_server.gateway_serve import open_gateway
from harborrl_agent_server.listeners import BODY_SECONDS
from harborrl_agent_server.metrics import Metrics
from harborrl_agent_server.peers import FORWARDED_BY, Peers, Resolve, together
from harborrl_agent_server.retention import Rule, Shelf, keep_sweeping
from harborrl_agent_server.runs import LeavingError, Runs
from harborrl_agent_server.scope import SandboxProvider, TellsNetwork
from harborrl_agent_server.sessions import SessionTakenError
from harborrl_agent_server.settings import Settings
from harborrl_agent_server.warmth import KeepsWarm, WarmthCollector

BODY_LIMIT = 32 * 1024 * 1024
"""Bytes. A request carries a whole row of the data set, patches included."""

CLOSED = {"Connection": "close"}
"""What is left of the body is not read."""

LEAVING = {"Retry-After": "2", "Connection": "close", "X-HarborRL-Trial": "not-started"}
"""The next connection goes to whom the Service names by then; this one would come back here. By the last the client
knows that this 503 is ours: a proxy's may come of a trial that runs."""

REFUSED = {"WWW-Authenticate": "Bearer", "Connection": "close"}
"""The body of who may not ask is not read."""

try:
    VERSION = version("harborrl")
except PackageNotFoundError:
    VERSION = "0.1.0"
    """Run from a checkout."""


def create_app(
    settings: Settings,
    provider: SandboxProvider,
    servers: Resolve | None = None,
    admission: Admission | None = None,
    gateway_door: socket.socket | None = None,
) -> FastAPI:
    """The server as an ASGI application over an open provider; its runs are `app.state.runs` while it is up.

    `servers`: the job's agent servers, by default those behind its headless Service. `admission`: by default this
    server's alone. `gateway_door`: the gateway's port, where it is taken already.
    """
    metrics = Metrics()
    metrics.capacity.set(settings.max_concurrent)
    if isinstance(provider, KeepsWarm):
        metrics.registry.register(WarmthCollector(provider))
    app = FastAPI(
        title="HarborRL agent server",
        version=VERSION,
        lifespan=lambda app: lifespan(
            app,
            settings,
            provider,
            metrics=metrics,
            servers=servers,
            admission=admission,
            gateway=open_gateway(settings, gateway_door, metrics.refuse),
        ),
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    add_work(app, settings)
    add_insight(app, settings, metrics, provider)
    return app


@contextlib.asynccontextmanager
async def lifespan(
    app: FastAPI,
    settings: Settings,
    provider: SandboxProvider,
    *,
    metrics: Metrics,
    servers: Resolve | None,
    admission: Admission | None,
    gateway: AbstractAsyncContextManager[Gateway],
) -> AsyncIterator[None]:
    async with gateway as opened, httpx.AsyncClient(trust_env=False) as peer_client:
        app.state.runs = Runs(settings, provider, opened, metrics, admission=admission)
        app.state.peers = Peers(settings, peer_client, servers)
        runs: Runs = app.state.runs
        chores = [
            alone(chore)
            for chore in (
                metrics.watch_loop(),
                runs.reaper.keep_reaping(settings.reap_interval_s),
                keep_sweeping(Shelf(settings.trials_dir), retention(settings), runs.trial_names),
            )
        ]
        try:
            yield
        finally:
            for chore in chores:
                chore.cancel()
            if not runs.draining:
                await runs.stop(settings.grace_s)
            await runs.sessions.close()


def add_work(app: FastAPI, settings: Settings) -> None:
    @app.post("/run")
    async def run(request: Request) -> Response:
        runs: Runs = app.state.runs
        if settings.guard_run:
            demand_bearer(settings, request)
        # The whole body first: a client that still sends when it is refused sees a broken connection, and no refusal.
        wanted = parsed(RunRequest, await body_of(request))
        try:
            taken = runs.take(wanted)
        except SessionTakenError as error:
            raise HTTPException(409, str(error)) from error
        except LeavingError as error:
            raise HTTPException(503, str(error), headers=LEAVING) from error
        return TrialResponse(partial(runs.answer, taken), settings.heartbeat_s)

    @app.post("/flush")
    async def flush(request: Request) -> FlushResponse:
        demand_bearer(settings, request)
        runs: Runs = app.state.runs
        ids = parsed(FlushRequest, await body_of(request)).ids()
        sender = request.headers.get(FORWARDED_BY)
        if sender == settings.pod_name:
            return FlushResponse(cancelled=0, pending=0, ids=ids)  # our own, which has found us among the servers
        if sender is not None:
            return await runs.flush(ids)
        peers: Peers = app.state.peers
        own, others = await asyncio.gather(runs.flush(ids), peers.flush(ids))
        return together(own, others)


def add_insight(app: FastAPI, settings: Settings, metrics: Metrics, provider: SandboxProvider) -> None:
    @app.get("/health")
    async def health() -> Health:
        told = {"network_policies": provider.network_policies()} if isinstance(provider, TellsNetwork) else {}
        return health_of(app.state.runs, settings).model_copy(update=told)

    @app.get("/ready")
    async def ready() -> Response:
        """For the readiness probe: whether new runs are taken. `/health` answers as long as the process is well."""
        leaving = app.state.runs.draining
        return Response("leaving" if leaving else "ready", status_code=503 if leaving else 200)

    @app.get("/metrics")
    async def show_metrics() -> Response:
        runs: Runs = app.state.runs
        metrics.in_flight.set(runs.slots.taken)
        metrics.queued.set(runs.slots.queued)
        metrics.leftover.set(len(runs.reaper.left))
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)


def retention(settings: Settings) -> Rule:
    """What may still run, or be asked for again by a client that waits twice the budgets, stays.

    Of several workers on one volume the first sweeps it.
    """
    if settings.worker is not None and settings.worker.index > 0:
        return Rule(0, 0, 0)
    return Rule(settings.keep_trials, settings.keep_trials_days * 86400, young_s=2 * settings.budgets.total())


def health_of(runs: Runs, settings: Settings) -> Health:
    slots = runs.slots
    oldest = runs.oldest_s()
    return Health(
        status=runs.status(),
        version=VERSION,
        instance=settings.pod_name,
        capacity=slots.capacity,
        in_flight=slots.taken,
        queued=slots.queued,
        free=slots.free,
        oldest_trial_s=None if oldest is None else round(oldest, 3),
        budgets=asdict(settings.budgets),
        outcomes=dict(runs.outcomes),
        warm=warm_of(runs.provider),
    )


def warm_of(provider: SandboxProvider) -> Warm:
    return Warm(**asdict(provider.warmth())) if isinstance(provider, KeepsWarm) else Warm()


def demand_bearer(settings: Settings, request: Request) -> None:
    if not may_act(settings.admin_secret, request.headers.get("authorization", "")):
        raise HTTPException(401, "send Authorization: Bearer with HARBOR_ADMIN_SECRET", headers=REFUSED)


async def body_of(request: Request, limit_s: float = BODY_SECONDS) -> bytes:
    """Of one that is too large as much again is read, for a client that still sends sees no refusal, and no more."""
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(limit_s):
            async for chunk in request.stream():
                size += len(chunk)
                body += chunk if size <= BODY_LIMIT else b""
                if size > 2 * BODY_LIMIT:
                    break
    except ClientDisconnect as error:
        raise HTTPException(400, "the client left before its body was complete") from error
    except TimeoutError as error:
        said = f"the body was not complete within {limit_s:.0f} s; nothing has been started"
        raise HTTPException(408, said, headers=CLOSED) from error
    if size > BODY_LIMIT:
        said = f"the body is larger than {BODY_LIMIT} bytes; send fewer columns of the data set"
        raise HTTPException(413, said, headers=CLOSED)
    return bytes(body)


def parsed[Model: BaseModel](model: type[Model], body: bytes) -> Model:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise HTTPException(422, error.errors(include_url=False, include_input=False, include_context=False)) from error
