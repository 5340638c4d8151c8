"""Whether a registry has an image: one HEAD on its manifest, with the token that the registry asks for."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import httpx

from harborrl_agent_server.sandboxes.references import Reference
from harborrl_agent_server.task_images.credentials import Credentials

MANIFESTS = (
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
)
CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class State(Enum):
    FOUND = "found"
    MISSING = "missing"
    UNAUTHORISED = "unauthorised"
    UNREACHABLE = "unreachable"
    """No answer, or one that says nothing about the image."""


@dataclass(frozen=True)
class Answer:
    state: State
    digest: str = ""
    said: str = ""


Known = Callable[[str], Credentials | None]


class Registries:
    """Every registry that a run talks to; tokens are kept, for tasks share repositories."""

    def __init__(self, client: httpx.AsyncClient, known: Known, insecure: frozenset[str] = frozenset()) -> None:
        self._client = client
        self._known = known
        self._insecure = insecure
        self._headers: dict[tuple[str, str], dict[str, str]] = {}
        self._away: dict[str, Answer] = {}
        """Hosts that took no connection: nobody waits for them once more for each of a thousand tasks."""

    async def look(self, image: Reference) -> Answer:
        if image.host in self._away:
            return self._away[image.host]
        place = (image.host, image.repository)
        plain = image.is_local or image.host in self._insecure
        url = f"{'http' if plain else 'https'}://{image.address}/v2/{image.repository}/manifests/{image.manifest}"
        try:
            answer = await self._ask(url, self._headers.get(place, {}))
            if answer.status_code == httpx.codes.UNAUTHORIZED:
                headers = await self._login(answer.headers.get("www-authenticate", ""), image)
                if headers is None:
                    return Answer(State.UNAUTHORISED, said="the registry took no credentials of this user")
                self._headers[place] = headers
                answer = await self._ask(url, headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            found = Answer(State.UNREACHABLE, said=f"{type(error).__name__}: {error}".rstrip(": "))
            if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                self._away[image.host] = found
            return found
        return judged(answer)

    async def _ask(self, url: str, headers: dict[str, str]) -> httpx.Response:
        return await self._client.head(url, headers={"Accept": MANIFESTS, **headers}, follow_redirects=True)

    async def _login(self, challenge: str, image: Reference) -> dict[str, str] | None:
        """Headers that answer a challenge; None when this user cannot. Raises httpx's errors."""
        kind, _, rest = challenge.partition(" ")
        asked = dict(CHALLENGE.findall(rest))
        known = self._known(image.host)
        if kind.lower() == "basic":
            return {"Authorization": basic(known)} if known is not None and known.user else None
        if kind.lower() != "bearer" or "realm" not in asked:
            return None
        scope = asked.get("scope") or f"repository:{image.repository}:pull"
        token = await self._token(asked["realm"], asked.get("service", ""), scope, known)
        return {"Authorization": f"Bearer {token}"} if token else None

    async def _token(self, realm: str, service: str, scope: str, known: Credentials | None) -> str:
        query = {"service": service, "scope": scope} if service else {"scope": scope}
        if known is not None and known.identity_token:
            form = {"grant_type": "refresh_token", "refresh_token": known.identity_token, "client_id": "harborrl"}
            answer = await self._client.post(realm, data={**form, **query})
        else:
            headers = {"Authorization": basic(known)} if known is not None and known.user else {}
            answer = await self._client.get(realm, params=query, headers=headers)
        if answer.status_code in {400, 401, 403}:
            return ""
        answer.raise_for_status()
        try:
            told: Any = answer.json()
            return str(told.get("token") or told.get("access_token") or "")
        except (ValueError, AttributeError):
            return ""


def judged(answer: httpx.Response) -> Answer:
    match answer.status_code:
        case 200:
            return Answer(State.FOUND, digest=answer.headers.get("docker-content-digest", ""))
        case 404:
            return Answer(State.MISSING)
        case 401 | 403:
            return Answer(State.UNAUTHORISED, said=f"HTTP {answer.status_code}")
        case code:
            return Answer(State.UNREACHABLE, said=f"HTTP {code}")


def basic(known: Credentials) -> str:
    request = httpx.Request("GET", "http://registry")
    flow = httpx.BasicAuth(known.user, known.password).auth_flow(request)
    return str(next(flow).headers["Authorization"])
