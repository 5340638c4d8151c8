"""The dashboard's routes. Every one only reads; what it reads is the feed and the trials volume."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, StreamingResponse

from harborrl_agent_server.dashboard.access import Access
from harborrl_agent_server.dashboard.feed import Event, Feed, TooManyWatchersError
from harborrl_agent_server.dashboard.gate import Guard, destination
from harborrl_agent_server.dashboard.trials import TrialReader
from harborrl_agent_server.settings import Settings

STATIC = files("harborrl_agent_server.dashboard") / "static"

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

READ_SECONDS = 20
"""For a trial's files; a volume that takes longer hangs."""


def create_dashboard(
    settings: Settings, feed: Feed, reader: TrialReader, threads: ThreadPoolExecutor, version: str
) -> FastAPI:
    access = Access(settings.admin_secret, f"{settings.pod_name}:{settings.dashboard_port}")
    app = FastAPI(
        title="HarborRL dashboard",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lambda _: following(feed),
    )
    app.add_middleware(Guard, access=access)
    add_pages(app, access)
    add_data(app, feed, reader, threads, facts(settings, version, access))
    return app


@contextlib.asynccontextmanager
async def following(feed: Feed) -> AsyncIterator[None]:
    follower = asyncio.ensure_future(feed.follow())
    try:
        yield
    finally:
        feed.close()
        follower.cancel()


def facts(settings: Settings, version: str, access: Access) -> dict[str, Any]:
    """What does not change while the server runs."""
    return {
        "job": "/".join(part for part in (settings.job.namespace, settings.job.name) if part),
        "instance": settings.pod_name,
        "version": version,
        "budgets": asdict(settings.budgets),
        "total": settings.budgets.total(),
        "workers": settings.workers,
        "guarded": not access.is_open,
    }


def add_pages(app: FastAPI, access: Access) -> None:
    @app.get("/")
    @app.get("/trials/{name}")
    async def index() -> Response:
        return static("index.html")

    @app.get("/assets/{name}")
    async def asset(name: str) -> Response:
        return static(name) if not name.endswith(".html") else Response(status_code=404)

    @app.get("/login")
    async def ask(request: Request) -> Response:
        return RedirectResponse("/", status_code=303) if access.admits(request) else login_page(wrong=False)

    @app.post("/login")
    async def let_in(request: Request) -> Response:
        if not await access.knows_secret(request):
            return login_page(wrong=True)
        response = RedirectResponse(destination(request), status_code=303)
        access.let_in(response, secure=request.url.scheme == "https")
        return response

    @app.post("/logout")
    async def let_out() -> Response:
        response = RedirectResponse("/login", status_code=303)
        access.let_out(response)
        return response


def add_data(app: FastAPI, feed: Feed, reader: TrialReader, threads: ThreadPoolExecutor, known: dict[str, Any]) -> None:
    @app.get("/api/facts")
    async def show_facts() -> dict[str, Any]:
        return known

    @app.get("/api/state")
    async def state() -> dict[str, Any]:
        await feed.look()
        return feed.whole()[1]

    @app.get("/api/events")
    async def events() -> Response:
        watching = feed.watch()
        try:
            first = await anext(watching)
        except TooManyWatchersError:
            return JSONResponse({"detail": "too many open pages; close some"}, status_code=503)
        return StreamingResponse(as_stream(first, watching), media_type="text/event-stream")

    @app.get("/api/trials/{name}")
    async def trial(name: str) -> Response:
        reading = asyncio.get_running_loop().run_in_executor(threads, reader.read, name)
        try:
            return JSONResponse(await asyncio.wait_for(reading, READ_SECONDS))
        except TimeoutError:
            return JSONResponse({"detail": "the trials volume does not answer"}, status_code=504)
        except (FileNotFoundError, NotADirectoryError):
            return JSONResponse({"detail": f"there is no trial {name[:128]}"}, status_code=404)


async def as_stream(first: Event, rest: AsyncGenerator[Event]) -> AsyncIterator[bytes]:
    async with contextlib.aclosing(rest):
        yield as_bytes(first)
        async for event in rest:
            yield as_bytes(event)


def as_bytes(event: Event) -> bytes:
    name, data = event
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return f"event: {name}\ndata: {text}\n\n".encode()


def static(name: str, status: int = 200) -> Response:
    """A file of the package. Names come from a listing, so none leads out of it."""
    for entry in STATIC.iterdir():
        if entry.name == name:
            return Response(entry.read_bytes(), status, media_type=TYPES[name.rpartition(".")[2]])
    return Response(status_code=404)


def login_page(*, wrong: bool) -> Response:
    page = (STATIC / "login.html").read_text()
    note = "That is not the secret of this server." if wrong else ""
    return HTMLResponse(page.replace("<!--note-->", note), status_code=401 if wrong else 200)
