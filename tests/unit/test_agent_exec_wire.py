"""The exec protocol over WebSocket frames, against a scripted peer and a real one."""

import asyncio
import hashlib
import io
import json
import os

import aiohttp
import pytest
from aiohttp import web

from harborrl_agent_server.errors import SandboxTransportError, SandboxUnusableError
from harborrl_agent_server.sandboxes.pod_exec import counted
from harborrl_agent_server.sandboxes.streams import Capture, chunks
from harborrl_agent_server.sandboxes.wire import STDERR, STDIN, STDOUT, converse, exit_code

OK = json.dumps({"status": "Success"}).encode()
EXIT_7 = json.dumps({"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "7"}]}}).encode()


class Peer:
    """Plays back frames; keeps what was sent."""

    def __init__(self, *frames: bytes) -> None:
        self.frames = list(frames)
        self.sent: list[bytes] = []

    async def send_bytes(self, data: bytes) -> None:
        self.sent.append(data)

    async def receive(self) -> aiohttp.WSMessage:
        await asyncio.sleep(0)
        if self.frames:
            return aiohttp.WSMessage(aiohttp.WSMsgType.BINARY, self.frames.pop(0), None)
        return aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None)

    async def close(self) -> bool:
        return True


async def talk(peer: Peer, *, stdin: bytes | None = None) -> tuple[int, str, str]:
    out, err = Capture(1000), Capture(1000)
    source = chunks(io.BytesIO(stdin)) if stdin is not None else None
    code = await converse(peer, stdin=source, stdout=out, stderr=err)
    return code, out.text(), err.text()


async def test_channels_go_where_they_belong() -> None:
    peer = Peer(bytes([STDOUT]) + b"out", bytes([STDERR]) + b"err", bytes([3]) + EXIT_7)
    assert await talk(peer) == (7, "out", "err")


async def test_a_frame_of_nothing_belongs_to_no_channel() -> None:
    assert await talk(Peer(b"", bytes([STDOUT]) + b"out", b"", bytes([3]) + OK)) == (0, "out", "")


async def test_a_character_split_over_two_frames_survives() -> None:
    euro = "€".encode()
    peer = Peer(bytes([STDOUT]) + euro[:1], bytes([STDOUT]) + euro[1:], bytes([3]) + OK)
    assert await talk(peer) == (0, "€", "")


async def test_a_missing_status_is_never_an_exit_code() -> None:
    with pytest.raises(SandboxTransportError, match="without the command's status"):
        await talk(Peer(bytes([STDOUT]) + b"done"))


async def test_input_goes_out_on_its_channel_and_the_far_side_counts_it() -> None:
    peer = Peer(bytes([STDOUT]), bytes([STDOUT]), bytes([STDOUT]), bytes([3]) + OK)
    await talk(peer, stdin=b"data")
    assert peer.sent == [bytes([STDIN]) + b"data"]
    assert counted(["cat"], io.BytesIO(b"data"))[-2:] == ["4", "cat"]


@pytest.mark.parametrize("status", [b"nonsense", b'{"status":"Failure","message":"container not found"}', b"[]"])
def test_a_status_that_is_not_the_commands_own_is_a_transport_error(status: bytes) -> None:
    with pytest.raises(SandboxTransportError):
        exit_code(status)


SPOILT = (
    "error executing command in container: failed to exec in container: failed to start exec: OCI runtime exec failed: "
    'exec failed: unable to start container process: exec: "/bin/sh": '
)
"""As containerd says it of a running container (2.1, runc 1.3)."""


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (f"{SPOILT}stat /bin/sh: no such file or directory: unknown", SandboxUnusableError),
        (f"{SPOILT}permission denied: unknown", SandboxUnusableError),
        (f"{SPOILT}resource temporarily unavailable: unknown", SandboxTransportError),
        ("container not found: no such file or directory", SandboxTransportError),
    ],
)
def test_a_sandbox_that_was_emptied_from_within_is_told_from_one_that_cannot_be_reached(
    said: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match="could not run the command"):
        exit_code(json.dumps({"status": "Failure", "message": said}).encode())


async def test_64_mebibytes_return_unchanged_through_a_real_socket() -> None:
    """An echoing peer on loopback, which ends when it has everything."""

    async def echo(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        left = len(payload)
        async for message in socket:
            await socket.send_bytes(bytes([STDOUT]) + message.data[1:])
            left -= len(message.data) - 1
            if not left:
                await socket.send_bytes(bytes([3]) + OK)
                break
        await socket.close()
        return socket

    payload = os.urandom(1024 * 1024) * 64
    app = web.Application()
    app.router.add_get("/", echo)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    digest = hashlib.sha256()
    async with aiohttp.ClientSession() as session:
        host, port = runner.addresses[0][:2]
        socket = await session.ws_connect(f"http://{host}:{port}/")
        code = await converse(socket, stdin=chunks(io.BytesIO(payload)), stdout=digest.update, stderr=Capture(100))
    await runner.cleanup()
    assert code == 0
    assert digest.digest() == hashlib.sha256(payload).digest()


async def test_a_stream_cut_in_the_middle_is_a_transport_error() -> None:
    async def cut(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_bytes(bytes([STDOUT]) + b"half")
        if request.transport is not None:
            request.transport.abort()
        return socket

    app = web.Application()
    app.router.add_get("/", cut)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    out = Capture(100)
    async with aiohttp.ClientSession() as session:
        host, port = runner.addresses[0][:2]
        socket = await session.ws_connect(f"http://{host}:{port}/")
        with pytest.raises(SandboxTransportError):
            await converse(socket, stdin=None, stdout=out, stderr=out)
    await runner.cleanup()
    assert out.text() == "half"


def test_a_capture_keeps_the_first_and_the_last_half() -> None:
    capture = Capture(10)
    for letter in b"abcdefghijklmnopqrst":
        capture(bytes([letter]))
    assert capture.text() == "abcde\n[... 10 bytes omitted ...]\npqrst"
