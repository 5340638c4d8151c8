"""The routes of a server, over its workers."""

import asyncio

import httpx
from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from harborrl_agent_server.app import VERSION, body_of, demand_bearer, parsed
from harborrl_agent_server.contract import FlushRequest, FlushResponse, Health
from harborrl_agent_server.dispatch import merging
from harborrl_agent_server.dispatch.choosing import worker_for
from harborrl_agent_server.dispatch.forwarding import Forwarded
from harborrl_agent_server.dispatch.workers import Child, Workers
from harborrl_agent_server.gateway import UnknownTokenError, refused
from harborrl_agent_server.peers import FORWARDED_BY, TIMEOUT, Peers
from harborrl_agent_server.settings import Settings

LOOK = httpx.Timeout(5)
"""Seconds for a worker to say how it is."""


def create_app(settings: Settings, workers: Workers, peers: Peers) -> FastAPI:
    app = FastAPI(title="HarborRL agent server", version=VERSION, docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/run")
    async def run(request: Request) -> Response:
        if settings.guard_run:
            demand_bearer(settings, request)
        body = await body_of(request)
        return Forwarded(workers.children[worker_for(body, len(workers.children))].client, request, body)

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

    add_insight(app, settings, workers)
    return app


def add_insight(app: FastAPI, settings: Settings, workers: Workers) -> None:
    @app.get("/health")
    async def health() -> Response:
        found = [Health.model_validate_json(text) for text in await told(workers, "/health")]
        if not found:
            return JSONResponse({"detail": "no worker answers"}, 503)
        merged = merging.health(found, workers=len(workers.children), instance=settings.pod_name)
        status = {"status": "draining"} if workers.leaving else {}
        return JSONResponse(merged.model_copy(update=status).model_dump(mode="json"))

    @app.get("/ready")
    async def ready() -> Response:
        if workers.leaving:
            return Response("leaving", 503)
        all_are = all(await asyncio.gather(*(child.is_up() for child in workers.children)))
        return Response("ready", 200) if all_are else Response("a worker is not up", 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        registry = CollectorRegistry()
        registry.register(Merged(merging.metrics(await told(workers, "/metrics"))))
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class Merged:
    """As prometheus_client wants what it writes."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


async def told(workers: Workers, path: str) -> list[str]:
    """What each worker that answers says."""

    async def one(child: Child) -> str | None:
        try:
            answer = await child.client.get(path, timeout=LOOK)
        except httpx.HTTPError:
            return None
        return answer.text if answer.status_code == 200 else None

    return [text for text in await asyncio.gather(*map(one, workers.children)) if text is not None]


async def flush_of(child: Child, ids: list[str], settings: Settings) -> FlushResponse:
    """Of its own trials alone. One that is not there has none: they have ended with it."""
    secret = settings.admin_secret
    headers = {FORWARDED_BY: "dispatcher"} | ({"Authorization": f"Bearer {secret}"} if secret else {})
    try:
        body = {"session_server_instance_ids": ids}
        answer = await child.client.post("/flush", json=body, headers=headers, timeout=TIMEOUT)
        return parsed_answer(FlushResponse, answer)
    except httpx.ConnectError:
        return FlushResponse(cancelled=0, pending=0, ids=ids)
    except (httpx.HTTPError, ValidationError):
        return FlushResponse(cancelled=0, pending=0, ids=ids, unreached=1)


def parsed_answer[Model: BaseModel](model: type[Model], answer: httpx.Response) -> Model:
    answer.raise_for_status()
    return model.model_validate_json(answer.content)


def gateway_app(workers: Workers) -> Starlette:
    """Model requests from inside sandboxes: a token names the worker that gave it."""

    async def model(request: Request) -> Response:
        number, _, _ = request.path_params["token"].partition("-")
        if not number.isascii() or not number.isdecimal() or int(number) >= len(workers.children):
            return refused(UnknownTokenError("unknown token"))
        return Forwarded(workers.children[int(number)].gateway, request, await body_of(request))

    return Starlette(routes=[Route("/m/{token}/v1/{rest:path}", model, methods=["GET", "POST"])])
