"""How the agent server speaks to the API server, against a small one on the loopback address."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from kubernetes.aio import client, config

from harborrl_agent_server.sandboxes.cluster import Cluster, KubeUnreachableError


class ApiServer:
    """Answers every path with one text, and notes who asked."""

    def __init__(self) -> None:
        self.text = "{}"
        self.tokens: list[str | None] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.tokens.append(request.headers.get("Authorization"))
        return web.Response(text=self.text)


@pytest.fixture
def api() -> ApiServer:
    return ApiServer()


@pytest.fixture
async def configuration(api: ApiServer) -> AsyncIterator[client.Configuration]:
    app = web.Application()
    app.router.add_get("/{path:.*}", api.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    found = client.Configuration(host=f"http://{host}:{port}")
    found.api_key["BearerToken"] = "bearer first"
    yield found
    await runner.cleanup()


@pytest.fixture
async def cluster(configuration: client.Configuration) -> AsyncIterator[Cluster]:
    opened = Cluster(configuration)
    yield opened
    await opened.close()


async def test_a_page_that_is_no_json_is_no_answer(cluster: Cluster, api: ApiServer) -> None:
    api.text = "<html>gateway</html>"
    with pytest.raises(KubeUnreachableError):
        await cluster.request("GET", "/api/v1/pods")


async def test_a_token_that_is_just_being_replaced_is_no_answer(
    cluster: Cluster, configuration: client.Configuration
) -> None:
    def replaced(_: client.Configuration) -> None:
        raise config.ConfigException("Token file exists but empty.")

    configuration.refresh_api_key_hook = replaced  # type: ignore[assignment] # generated as None
    with pytest.raises(KubeUnreachableError):
        await cluster.request("GET", "/api/v1/pods")


async def test_every_request_asks_for_the_token_of_the_hour(
    cluster: Cluster, configuration: client.Configuration, api: ApiServer
) -> None:
    tokens = iter(["bearer second", "bearer third"])

    def renew(configuration: client.Configuration) -> None:
        configuration.api_key["BearerToken"] = next(tokens)

    configuration.refresh_api_key_hook = renew  # type: ignore[assignment] # generated as None
    for _ in range(2):
        await cluster.request("GET", "/api/v1/pods")
    assert api.tokens == ["bearer second", "bearer third"]
