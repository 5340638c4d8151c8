"""The session server of the benchmark, a process of its own: a script, and as little work a reply as Python can do.

`python -m benchmarks.trial_load.sessions TURNS SECONDS` prints its URL and serves until its input ends. The first
requests of a session are answered with a command each, the last of TURNS with the one that solves the task; every
answer takes SECONDS.
"""

import asyncio
import json
import re
import sys
from typing import override

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
END = b"\r\n\r\n"


def reply(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    body = json.dumps({"choices": [choice], "usage": usage}).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def script(turns: int) -> list[bytes]:
    steps = [f"```sh\necho step {turn} | tee -a log\n```" for turn in range(1, turns)]
    return [reply(text) for text in [*steps, "```sh\necho hello >greeting.txt\n```\nTASK_DONE"]]


class Sessions:
    """How far each session is."""

    def __init__(self, turns: int) -> None:
        self._script = script(turns)
        self._turn: dict[bytes, int] = {}

    def next(self, session: bytes) -> bytes:
        turn = self._turn.pop(session, 0)
        if turn + 1 < len(self._script):
            self._turn[session] = turn + 1
        return self._script[turn]


class Connection(asyncio.Protocol):
    def __init__(self, sessions: Sessions, seconds: float) -> None:
        self._sessions = sessions
        self._seconds = seconds
        self._received = bytearray()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        self._received += data
        while (head := self._received.find(END)) >= 0:
            said = LENGTH.search(self._received, 0, head + 2)
            whole = head + len(END) + (int(said[1]) if said else 0)
            if len(self._received) < whole:
                return
            path = bytes(self._received[:head]).split(b" ", 2)[1]
            del self._received[:whole]
            asyncio.get_running_loop().call_later(self._seconds, self._answer, self._sessions.next(path))

    def _answer(self, answer: bytes) -> None:
        if isinstance(self._transport, asyncio.WriteTransport) and not self._transport.is_closing():
            self._transport.write(answer)


async def serve(turns: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    sessions = Sessions(turns)
    server = await loop.create_server(lambda: Connection(sessions, seconds), "127.0.0.1", 0, backlog=4096)
    host, port = server.sockets[0].getsockname()
    print(f"http://{host}:{port}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
