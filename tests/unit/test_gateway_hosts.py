"""Where a request may send the agent's model requests: judged by name, and again by the address of the connection."""

import asyncio
import ipaddress
import socket
from typing import Any, override

import httpx
import pytest

from harborrl_agent_server.endpoints import EndpointRefusedError, HostRules, checked_endpoint
from harborrl_agent_server.errors import ModelEndpointError, StartupError
from harborrl_agent_server.gateway_connect import JudgedTransport, model_client
from harborrl_agent_server.gateway_session import ModelSession, Upstream
from support.agent_http import SessionServer, replies, serving

ANYWHERE = HostRules()
LISTED = HostRules.parse(["trainer.ns.svc", "*.Example.org", "10.1.0.0/16", "fd12::/16", "192.0.2.7"], loopback=True)


@pytest.mark.parametrize(
    "url",
    [
        "http://trainer.ns.svc:30000/sessions/1/v1",
        "https://a.b.example.org/v1/",
        "http://TRAINER.ns.svc./v1",
        "http://10.1.2.3:8000/v1",
        "http://[fd12::1]:80/v1",
        "http://192.0.2.7/v1",
    ],
)
def test_a_listed_host_is_taken(url: str) -> None:
    assert checked_endpoint(url, LISTED) == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "http://10.2.0.1/v1",
        "http://[fd13::1]/v1",
        "http://127.0.0.1/v1",
        "http://169.254.169.254/v1",
        "http://[::ffff:169.254.169.254]/v1",
        "http://[fd00:ec2::254]/v1",
        "http://0.0.0.0:30000/v1",
        "http://metadata.google.internal/v1",
    ],
)
def test_an_address_that_is_not_listed_is_refused(url: str) -> None:
    with pytest.raises(EndpointRefusedError):
        checked_endpoint(url, LISTED)


@pytest.mark.parametrize("name", ["example.org", "evil-example.org", "trainer.ns.svc.evil", "ns.svc"])
def test_a_name_is_only_itself(name: str) -> None:
    rules = HostRules.parse(["trainer.ns.svc", "*.example.org"], loopback=True)
    with pytest.raises(EndpointRefusedError, match="--allowed-model-hosts"):
        checked_endpoint(f"http://{name}/v1", rules)


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "ftp://host/v1",
        "file:///etc/passwd",
        "http:///v1",
        "http://user:pw@host/v1",
        "http://host/flush?x=",
        "http://host/flush#",
        "http://host:99999/v1",
        "http://[::1/v1",
        "http://168.63.129.16/v1",
        "http://[2002:a9fe:a9fe::1]/v1",
        "http://[64:ff9b::a9fe:a9fe]/v1",
        "http://[64:ff9b:1::a9fe:a9fe]/v1",
        "http://[::ffff:0:a9fe:a9fe]/v1",
        "http://[::169.254.169.254]/v1",
        "http://[2001:0:a9fe:a9fe::]/v1",
        "http://[fd20:ce::254]/v1",
        f"http://{'a' * 64}/v1",
        f"http://{'a.' * 30}{'b' * 300}/v1",
        "http://a..b/v1",
        "http://.a/v1",
        "http://xn--/v1",
    ],
)
def test_what_is_no_session_is_refused_even_without_a_list(url: str | None) -> None:
    with pytest.raises(EndpointRefusedError):
        checked_endpoint(url, ANYWHERE)


def test_a_server_of_a_cluster_does_not_ask_itself_unless_told_to() -> None:
    with pytest.raises(EndpointRefusedError, match=r"127\.0\.0\.0/8 allows it"):
        checked_endpoint("http://127.0.0.1:30000/v1", HostRules(loopback=False))
    with pytest.raises(EndpointRefusedError, match=r"127\.0\.0\.0/8 allows it"):
        checked_endpoint("http://[64:ff9b::7f00:1]:30000/v1", HostRules(loopback=False))
    assert checked_endpoint("http://127.0.0.1/v1", HostRules.parse(["127.0.0.0/8"], loopback=False))


@pytest.mark.parametrize("entry", ["http://host", "a/b", "*", "*.", "host:80", "10.0.0.0/99", "a b"])
def test_an_entry_that_is_no_host_stops_the_server_at_its_start(entry: str) -> None:
    with pytest.raises(StartupError, match="--allowed-model-hosts"):
        HostRules.parse([entry], loopback=True)


class Noted(httpx.AsyncBaseTransport):
    """Answers nothing and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[httpx.Request] = []

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        return httpx.Response(204)


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Name service by hand: each look-up gets the next answer, the last one again and again."""
    asked: list[str] = []

    async def getaddrinfo(_: Any, host: str, __: Any, **___: Any) -> list[Any]:
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        kinds = {4: socket.AF_INET, 6: socket.AF_INET6}
        return [(kinds[ipaddress.ip_address(one).version], socket.SOCK_STREAM, 6, "", (one, 0)) for one in found]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return asked


async def test_the_connection_goes_to_the_address_that_was_judged_and_keeps_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up = resolving(monkeypatch, ["10.1.0.5"], ["169.254.169.254"])
    inner = Noted()
    async with httpx.AsyncClient(transport=JudgedTransport(LISTED, inner), trust_env=False) as client:
        await client.post("https://session.cluster:8443/v1/chat/completions", json={})
    request = inner.asked[0]
    assert (request.url.host, request.url.port) == ("10.1.0.5", 8443)
    assert request.headers["host"] == "session.cluster:8443"
    assert request.extensions["sni_hostname"] == "session.cluster"
    assert looked_up == ["session.cluster"]


@pytest.mark.parametrize("url", ["http://[2001:db8::1]/v1", "http://bücher.example/v1", "http://a.example./v1"])
def test_other_addresses_and_names_are_taken_without_a_list(url: str) -> None:
    assert checked_endpoint(url, ANYWHERE) == url


async def test_a_name_that_cannot_be_one_is_a_server_that_is_not_there() -> None:
    async with httpx.AsyncClient(transport=JudgedTransport(ANYWHERE, Noted()), trust_env=False) as client:
        with pytest.raises(httpx.ConnectError):
            await client.get("http://a..b/health")


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "10.2.0.1", "0.0.0.0"],  # noqa: S104 - refused
)
async def test_a_name_that_now_means_another_place_is_not_asked(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    resolving(monkeypatch, [address])
    inner = Noted()
    async with httpx.AsyncClient(transport=JudgedTransport(LISTED, inner), trust_env=False) as client:
        with pytest.raises(EndpointRefusedError):
            await client.post("http://session.cluster/v1", json={})
    assert inner.asked == []


async def test_a_listed_name_is_still_no_way_to_a_metadata_service(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, ["169.254.169.254"])
    async with httpx.AsyncClient(transport=JudgedTransport(LISTED, Noted()), trust_env=False) as client:
        with pytest.raises(EndpointRefusedError):
            await client.post("http://trainer.ns.svc/v1", json={})


async def test_a_refused_connection_ends_the_session_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = resolving(monkeypatch, ["169.254.169.254"])
    async with httpx.AsyncClient(transport=JudgedTransport(ANYWHERE, Noted()), trust_env=False) as client:
        session = ModelSession(Upstream("http://rebound/v1", "m"), client, {}, [])
        session.open()
        for _ in range(2):
            with pytest.raises(ModelEndpointError, match="link-local and metadata"):
                await session.complete({"messages": []})
    assert looked_up == ["rebound"]


async def test_a_name_with_two_addresses_is_tried_at_both(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SessionServer(replies("hi"))
    async with serving(server.app) as url, model_client(HostRules()) as client:
        resolving(monkeypatch, ["127.0.0.2", "127.0.0.1"])
        port = url.rsplit(":", 1)[1]
        session = ModelSession(Upstream(f"http://two-homes:{port}/sessions/s/v1", "m"), client, {}, [])
        session.open()
        reply = await session.complete({"messages": []})
    assert reply.content == "hi"
