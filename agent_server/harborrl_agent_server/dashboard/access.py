"""Who may look: everybody where no secret is set, else whoever knows it.

Programs send it as a bearer, as for `/flush`. A browser cannot, so it trades the secret once for a cookie, which holds
neither the secret nor anything that outlives this process.
"""

import hashlib
import hmac
import secrets
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response

FORM_LIMIT = 4096
"""Bytes of a login."""


class Access:
    def __init__(self, secret: str, instance: str) -> None:
        """`instance` names the server: cookies know no ports, and one browser may look at several by port-forward."""
        self._secret = secret
        key = secrets.token_bytes(32)
        self._ticket = hmac.new(key, secret.encode(), hashlib.sha256).hexdigest()
        self.cookie = f"harborrl-{hashlib.sha256(instance.encode()).hexdigest()[:8]}"

    @property
    def is_open(self) -> bool:
        return not self._secret

    def admits(self, request: Request) -> bool:
        if self.is_open:
            return True
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and same(token, self._secret):
            return True
        return same(request.cookies.get(self.cookie, ""), self._ticket)

    async def knows_secret(self, request: Request) -> bool:
        """Whether a login form brings the secret."""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM_LIMIT:
                return False
        sent = parse_qs(body.decode(errors="replace")).get("secret", [""])[0]
        return same(sent, self._secret)

    def let_in(self, response: Response, *, secure: bool) -> None:
        response.set_cookie(self.cookie, self._ticket, httponly=True, samesite="strict", secure=secure, path="/")

    def let_out(self, response: Response) -> None:
        response.delete_cookie(self.cookie, path="/", httponly=True, samesite="strict")


def same(sent: str, wanted: str) -> bool:
    """In a time that tells nothing about where they differ."""
    return hmac.compare_digest(sent.encode(), wanted.encode())
