"""What stands before every route: who may pass, and what every answer tells the browser to forbid."""

import re

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harborrl_agent_server.dashboard.access import Access

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

TRIAL_PAGE = re.compile(r"/trials/[A-Za-z0-9_-]{1,128}")

OPEN_PATHS = ("/login", "/assets/")
"""The way in, and what it looks like."""


class Guard:
    """Nothing passes without leave, and every answer carries our headers. Plain ASGI: it holds no stream back."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._passed(Request(scope, receive))(scope, receive, send_guarded)

    def _passed(self, request: Request) -> ASGIApp:
        path = request.url.path
        if path.startswith(OPEN_PATHS) or self._access.admits(request):
            return self._app
        if path.startswith("/api/"):
            detail = "send Authorization: Bearer with HARBOR_ADMIN_SECRET"
            return JSONResponse({"detail": detail}, status_code=401, headers={"WWW-Authenticate": "Bearer"})
        wanted = f"?next={path}" if TRIAL_PAGE.fullmatch(path) else ""
        return RedirectResponse(f"/login{wanted}", status_code=303)


def destination(request: Request) -> str:
    """Where a login leads: to the trial that was asked for, never to another host."""
    wanted = request.query_params.get("next", "")
    return wanted if TRIAL_PAGE.fullmatch(wanted) else "/"
