"""The routes of a server, over its workers."""

import asyncio
from collections.abc import Callable, Mapping

import httpx
from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from harborrl_agent_server.admission import Slots
from harborrl_agent_server.app import VERSION, body_of, demand_bearer, parsed
from harborrl_agent_server.bearer import headers_with
from harborrl_agent_server.contract import FlushRequest, FlushResponse, Health
from harborrl_agent_server.dispatch import merging
from harborrl_agent_server.dispatch.asking import any_is_up, told
from harborrl_agent_server.dispatch.choosing import request_of, worker_for
from harborrl_agent_server.dispatch.counters import Counters
from harborrl_agent_server.dispatch.forwarding import Forwarded
from harborrl_agent_server.dispatch.ledger import Ledger
from harborrl_agent_server.dispatch.workers import Child, Workers
from harborrl_agent_server.metrics import Metrics
from harborrl_agent_server.peers import FORWARDED_BY, Peers
from harborrl_agent_server.settings import Settings

FLUSH = httpx.Timeout(8.5, connect=3)
"""Seconds: above the 8 that a worker waits for its own cancelled trials, below what another server waits for us."""


def create_app(
    settings: Settings,
    workers: Workers,
    peers: Peers,
    *,
    slots: Slots,
    metrics: Metrics,
    learn: Callable[[str], object] = lambda _: None,
) -> FastAPI:
    """`slots` are those of the whole pod, `metrics` the dispatcher's own; `learn` is told the API key of each run."""
    app = FastAPI(title="HarborRL agent server", version=VERSION, docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/run")
    async def run(request: Request) -> Response:
        if settings.guard_run:
            demand_bearer(settings, request)
        body = await body_of(request)
        wanted = request_of(body)
        if wanted is not None:
            learn(wanted.api_key)
        return Forwarded(workers.children[worker_for(wanted, len(workers.children))].client, request, body)

    @app.post("/flush")
    async def flush(request: Request) -> FlushResponse:
        demand_bearer(settings, request)
        ids = parsed(FlushRequest, await body_of(request)).ids()
        sender = request.headers.get(FORWARDED_BY)
        if sender == settings.pod_name:
            return FlushResponse(cancelled=0, pending=0, ids=ids)
        own = asyncio.gather(*(flush_of(child, ids, settings) for child in workers.children))
        others = await peers.flush(ids) if sender is None else []
        return merging.flushed(ids, [*await own, *others])

    add_insight(app, settings, workers, slots)
    add_metrics(app, workers, Counters(metrics))
    return app


def add_metrics(app: FastAPI, workers: Workers, counters: Counters) -> None:
    @app.get("/metrics")
    async def show_metrics() -> Response:
        return Response(counters.page(await told(workers, "/metrics")), media_type=CONTENT_TYPE_LATEST)


def add_insight(app: FastAPI, settings: Settings, workers: Workers, slots: Slots) -> None:
    outcomes: Ledger[Mapping[str, int]] = Ledger({}, merging.outcomes)

    @app.get("/health")
    async def health() -> Response:
        found = []
        for answer in await told(workers, "/health"):
            if answer.text is not None:
                found.append(Health.model_validate_json(answer.text))
                outcomes.heard(answer.worker, answer.life, found[-1].outcomes)
        if not found:
            return JSONResponse({"detail": "no worker answers"}, 503)
        merged = merging.health(
            found,
            slots=slots,
            workers=len(workers.children),
            instance=settings.pod_name,
            outcomes=outcomes.whole(),
        )
        status = {"status": "draining"} if workers.leaving else {}
        return JSONResponse(merged.model_copy(update=status).model_dump(mode="json"))

    @app.get("/ready")
    async def ready() -> Response:
        """While one worker is up: the sessions of another are asked to come again, and the pod keeps its address."""
        if workers.leaving:
            return Response("leaving", 503)
        return Response("ready", 200) if await any_is_up(workers) else Response("no worker is up", 503)


async def flush_of(child: Child, ids: list[str], settings: Settings) -> FlushResponse:
    """Of its own trials alone. One that is not there has none: they have ended with it."""
    headers = {FORWARDED_BY: "dispatcher"} | headers_with(settings.admin_secret)
    try:
        body = {"session_server_instance_ids": ids}
        answer = await child.client.post("/flush", json=body, headers=headers, timeout=FLUSH)
        return parsed_answer(FlushResponse, answer)
    except httpx.ConnectError:
        return FlushResponse(cancelled=0, pending=0, ids=ids)
    except (httpx.HTTPError, ValidationError):
        return FlushResponse(cancelled=0, pending=0, ids=ids, unreached=1)


def parsed_answer[Model: BaseModel](model: type[Model], answer: httpx.Response) -> Model:
    answer.raise_for_status()
    return model.model_validate_json(answer.content)
