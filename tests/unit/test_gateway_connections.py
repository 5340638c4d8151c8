"""Connections to the model gateway from a sandbox that means harm: real sockets on loopback."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from harborrl_agent_server.gateway_connections import Connections, Limits
from support.agent_http import replies
from support.model_gateway import Desk, desk

LONG = 600.0


class Line:
    """One connection of a program in a sandbox."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    def send(self, text: str) -> None:
        self.writer.write(text.encode())

    async def answer(self) -> tuple[int, str]:
        """Status and head of the next answer; its body is read too."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next(line for line in head.splitlines() if line.startswith("content-length"))
        await self._reader.readexactly(int(length.split(":")[1]))
        return int(head.split()[1]), head

    async def closed(self) -> bytes:
        """What else comes until the server closes it."""
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self._reader.read(), 30)
        return b""

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof() and self._reader.exception() is None


@contextlib.asynccontextmanager
async def lines(it: Desk, number: int) -> AsyncIterator[list[Line]]:
    """Opened one after the other, so that their age is known."""
    opened: list[Line] = []
    port = int(it.gateway.address.rsplit(":", 1)[1])
    try:
        while len(opened) < number:
            opened.append(Line(*await asyncio.open_connection("127.0.0.1", port)))
        yield opened
    finally:
        for line in opened:
            line.writer.close()


def models(it: Desk, *headers: str, version: str = "1.1") -> str:
    return "\r\n".join([f"GET {path_of(it)}/models HTTP/{version}", "Host: gateway", *headers, "", ""])


def path_of(it: Desk) -> str:
    return it.url.removeprefix(it.gateway.address)


@contextlib.contextmanager
def counted(**limits: Any) -> Iterator[tuple[Connections, Counter[str]]]:
    why: Counter[str] = Counter()
    yield Connections(Limits(**{"first_s": LONG, **limits}), lambda one: why.update([one])), why


async def test_of_too_many_strangers_the_oldest_go_and_an_agent_is_answered() -> None:
    with counted(of_address=4) as (connections, why):
        async with desk(replies("hi"), connections=connections) as it, lines(it, 50) as flood:
            await asyncio.gather(*(line.closed() for line in flood[:46]))
            assert (await it.ask()).status_code == 200
            assert [line.is_open for line in flood[-3:]] == [True] * 3
    assert why == {"address": 47}


async def test_all_strangers_together_are_bounded_too_and_the_address_with_most_loses_them() -> None:
    with counted(of_address=100, of_all=8) as (connections, why):
        async with desk(replies("hi"), connections=connections) as it, lines(it, 12) as flood:
            await asyncio.gather(*(line.closed() for line in flood[:4]))
            assert flood[-1].is_open
    assert why == {"all": 4}


@pytest.mark.parametrize("beginning", ["", "G", "GET /m/", "GET /m/guess/v1/models HTTP/1.1\r\nx: y\r\n"], ids=repr)
async def test_a_stranger_that_does_not_come_to_its_request_has_a_short_time(beginning: str) -> None:
    with counted(first_s=0.05) as (connections, why):
        async with desk(replies("hi"), connections=connections) as it, lines(it, 1) as [line]:
            line.send(beginning)
            assert await line.closed() == b""
    assert why == {"silent": 1}


async def test_a_head_that_comes_byte_by_byte_wins_no_time() -> None:
    with counted(first_s=0.2) as (connections, why):
        async with desk(replies("hi"), connections=connections) as it, lines(it, 1) as [line]:
            end = asyncio.ensure_future(line.closed())
            while not end.done():
                line.send("x")
                await asyncio.wait({end}, timeout=0.01)
    assert why == {"silent": 1}


async def test_a_trial_keeps_so_many_connections_and_loses_those_that_ask_nothing() -> None:
    with counted(of_trial=3) as (connections, why):
        async with desk(replies("hi"), connections=connections) as it, lines(it, 10) as own:
            for line in own:
                line.send(models(it))
                assert (await line.answer())[0] == 200
            await asyncio.gather(*(line.closed() for line in own[:7]))
            for line in own[7:]:
                line.send(models(it))
                assert (await line.answer())[0] == 200
    assert why == {"trial": 7}


async def test_a_connection_whose_request_is_under_way_stays_whatever_its_trial_opens_besides() -> None:
    release, asked = asyncio.Event(), asyncio.Event()

    async def answer() -> str:
        asked.set()
        await release.wait()
        return "at last"

    with counted(of_trial=2) as (connections, _):
        async with desk(lambda *_: answer(), connections=connections) as it:
            waiting = asyncio.ensure_future(it.ask())
            await asked.wait()
            async with lines(it, 5) as others:
                for line in others:
                    line.send(models(it))
                    await line.answer()
                release.set()
                assert (await waiting).status_code == 200


async def test_guesses_win_no_time_and_a_client_of_a_trial_that_is_over_is_told_so() -> None:
    with counted(first_s=0.3) as (connections, why):
        async with desk(replies("hi"), connections=connections) as it, lines(it, 2) as [guessing, late]:
            with it.gateway.admitted(it.session) as url:
                over = url.removeprefix(it.gateway.address)
            late.send(f"POST {over}/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
            assert (await late.answer())[0] == 410
            end = asyncio.ensure_future(guessing.closed())
            while not end.done():
                guessing.send("GET /m/guess/v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
                await asyncio.wait({end}, timeout=0.02)
            await late.closed()
    assert why == {"silent": 2}


async def test_one_that_has_left_is_counted_no_more() -> None:
    with counted(of_address=2, of_trial=2) as (connections, why):
        async with desk(replies("hi"), connections=connections) as it:
            for _ in range(10):
                async with lines(it, 1) as [line]:
                    line.send(models(it, "Connection: close"))
                    await line.answer()
                    await line.closed()
                async with lines(it, 1):
                    pass
    assert why == {}


async def test_no_header_says_where_a_connection_comes_from() -> None:
    with counted(of_trial=2) as (connections, why):
        async with desk(replies("hi"), connections=connections) as it, lines(it, 3) as own:
            for number, line in enumerate(own):
                line.send(models(it, f"X-Forwarded-For: 10.0.0.{number}", "X-Forwarded-Proto: https"))
                assert (await line.answer())[0] == 200
            assert await own[0].closed() == b""
    assert why == {"trial": 1}


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
        pytest.param("GET /m/x/v1/models HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(f"GET /{'a' * 70_000} HTTP/1.1\r\nHost: x\r\n\r\n", id="an endless path"),
        pytest.param("GET / HTTP/1.1\r\n" + "a: b\r\n" * 20_000 + "\r\n", id="endless headers"),
        pytest.param("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", id="two lengths"),
        pytest.param("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", id="TLS"),
    ],
)
async def test_what_is_no_request_is_refused_and_writes_no_line(
    request_: str, caplog: pytest.LogCaptureFixture
) -> None:
    with counted() as (connections, _):
        async with desk(replies("hi"), connections=connections) as it, lines(it, 1) as [line]:
            line.send(request_)
            assert (await line.closed()).startswith(b"HTTP/1.1 40")
            assert (await it.ask()).status_code == 200
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    "rest", ["ZZZ\r\n", "5\r\nhello\r\n0\r\n" + "a: b\r\n" * 20_000, "ffffffffffffffffffffffff\r\n"]
)
@pytest.mark.parametrize("token", ["own", "guess"])
async def test_a_body_that_goes_wrong_ends_its_connection_alone_and_writes_no_line(
    token: str, rest: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Before an answer or behind it: a guess is answered at once, whatever still comes."""
    with counted() as (connections, _):
        async with desk(replies("hi"), connections=connections) as it, lines(it, 1) as [line]:
            path = path_of(it) if token == "own" else "/m/guess/v1"
            line.send(f"POST {path}/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            if token == "guess":
                assert (await line.answer())[0] == 401
            line.send(rest)
            await line.closed()
            assert (await it.ask()).status_code == 200
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_an_upgrade_is_not_taken_and_writes_no_line(caplog: pytest.LogCaptureFixture) -> None:
    upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA=="]
    with counted() as (connections, _):
        async with desk(replies("hi"), connections=connections) as it, lines(it, 1) as [line]:
            line.send(models(it, *upgrade))
            assert (await line.answer())[0] == 200
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_requests_in_one_packet_are_answered_in_their_order_and_an_old_client_once() -> None:
    with counted() as (connections, _):
        async with desk(replies("hi"), connections=connections) as it, lines(it, 2) as [line, old]:
            line.send(models(it) * 200)
            assert [(await line.answer())[0] for _ in range(200)] == [200] * 200
            old.send(models(it, version="1.0"))
            assert (await old.answer())[0] == 200
            assert await old.closed() == b""
