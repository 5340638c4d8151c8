"""A registry on loopback that speaks the token flow: anonymous for public repositories, an account for the others."""

import base64
from typing import Any

from fastapi import FastAPI, Request, Response

from support.agent_http import serving  # noqa: F401 - tests serve it

USER, PASSWORD = "reader", "right"
DIGEST = f"sha256:{'ab' * 32}"


class RegistryDouble:
    """`images` maps `repository:tag` to a status; what is not there is 404."""

    def __init__(self, images: dict[str, int], private: frozenset[str] = frozenset(), scheme: str = "Bearer") -> None:
        self.images = images
        self.private = private
        self.scheme = scheme
        self.asked: list[str] = []
        self.tokens = 0
        self.app = FastAPI()
        self.app.get("/token")(self.token)
        self.app.post("/token")(self.refreshed)
        self.app.head("/v2/{repository:path}/manifests/{tag}")(self.manifest)

    async def token(self, request: Request) -> Any:
        self.tokens += 1
        repository = request.query_params["scope"].split(":")[1]
        account = request.headers.get("authorization") == basic(USER, PASSWORD)
        if request.headers.get("authorization") and not account:
            return Response(status_code=401)
        return {"token": f"{repository}{'!' if account else ''}"}

    async def refreshed(self, request: Request) -> Any:
        body = (await request.body()).decode()
        self.tokens += 1
        return {"access_token": "team/private!"} if "refresh_token=renewed" in body else Response(status_code=401)

    async def manifest(self, repository: str, tag: str, request: Request) -> Response:
        self.asked.append(f"{repository}:{tag}")
        given = request.headers.get("authorization", "")
        private = repository in self.private
        if self.scheme == "Basic":
            allowed = given == basic(USER, PASSWORD)
            challenge = 'Basic realm="here"'
        else:
            allowed = given == f"Bearer {repository}!" or (not private and given == f"Bearer {repository}")
            realm = request.url_for("token")
            challenge = f'Bearer realm="{realm}",service="here",scope="repository:{repository}:pull"'
        if not allowed:
            return Response(status_code=401, headers={"www-authenticate": challenge})
        status = self.images.get(f"{repository}:{tag}", 404)
        return Response(status_code=status, headers={"docker-content-digest": DIGEST} if status == 200 else {})


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
