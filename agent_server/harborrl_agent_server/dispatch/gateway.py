"""Model requests from inside sandboxes: a token names the worker that gave it, and who has none is heard no further."""

from collections import Counter
from urllib.parse import quote

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harborrl_agent_server.app import body_of
from harborrl_agent_server.dispatch.forwarding import Forwarded
from harborrl_agent_server.dispatch.workers import Workers
from harborrl_agent_server.errors import ModelEndpointError
from harborrl_agent_server.gateway import AT_ONCE, BadRequestError, UnknownTokenError, refused
from harborrl_agent_server.gateway_connections import Connections

LOOK = httpx.Timeout(20)
"""Seconds for a worker to know its token."""


def gateway_app(workers: Workers, connections: Connections) -> Starlette:
    """Each request's token is asked for before its body is read: any sandbox can send one, of 32 MiB."""
    by_number = {str(number): child.gateway for number, child in enumerate(workers.children)}
    reading: Counter[str] = Counter()

    async def model(request: Request) -> Response:
        token = request.path_params["token"]
        worker = by_number.get(token.partition("-")[0])
        if worker is None:
            return refused(UnknownTokenError("unknown token"))
        try:
            known = await worker.get(f"/m/{quote(token, safe='')}/v1/models", timeout=LOOK)
        except httpx.HTTPError as error:
            return refused(ModelEndpointError(f"its worker is gone: {type(error).__name__}"))
        if known.status_code != httpx.codes.OK:
            return Response(known.content, known.status_code, media_type="application/json")
        connections.knows(request.client, token)
        if reading[token] >= AT_ONCE:
            return refused(BadRequestError(f"{AT_ONCE} requests of this trial are under way"))
        reading[token] += 1
        try:
            body = await body_of(request)
        finally:
            reading[token] -= 1
            if not reading[token]:
                del reading[token]
        return Forwarded(worker, request, body)

    return Starlette(routes=[Route("/m/{token}/v1/{rest:path}", model, methods=["GET", "POST"])])
