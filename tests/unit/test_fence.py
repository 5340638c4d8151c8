"""A process that may no longer act writes nothing."""

import asyncio

import pytest

from harborrl_operator.errors import NotLeadingError, UnansweredError
from harborrl_operator.transport import Answer, Request, fenced

READ = Request("get", "Pod", "/p")
WRITE = Request("patch", "Pod", "/p")


class Server:
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.is_mute = False

    async def send(self, request: Request) -> Answer:
        self.seen.append(request.verb)
        if self.is_mute:
            await asyncio.Event().wait()
        return Answer(200, "{}")


async def test_a_leader_writes() -> None:
    server = Server()
    await fenced(server.send, lambda: 5.0)(WRITE)
    assert server.seen == ["patch"]


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete"])
async def test_once_its_time_is_over_no_write_leaves_the_process(verb: str) -> None:
    server = Server()
    with pytest.raises(NotLeadingError):
        await fenced(server.send, lambda: 0.0)(Request(verb, "Pod", "/p"))
    assert server.seen == []


async def test_reading_is_always_allowed() -> None:
    server = Server()
    await fenced(server.send, lambda: -1.0)(READ)
    assert server.seen == ["get"]


async def test_a_write_is_given_up_when_the_time_to_act_is_over() -> None:
    server = Server()
    server.is_mute = True
    with pytest.raises(UnansweredError, match="another operator may lead"):
        await fenced(server.send, lambda: 0.01)(WRITE)
