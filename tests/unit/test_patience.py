"""An API server that asks for a moment gets it: 429 says that nothing was done, whatever the verb was."""

import pytest

from harborrl_operator.transport import LONGEST_WAIT_SECONDS, MOST_REFUSALS, Answer, Request, patient

BUSY = '{"message": "storage is (re)initializing"}'


class Busy:
    """Refuses `times` requests with 429; notes what it was asked and how long it was left alone."""

    def __init__(self, times: int, retry_after: float = 1.0) -> None:
        self.times, self.retry_after = times, retry_after
        self.asked: list[Request] = []
        self.waits: list[float] = []

    async def send(self, request: Request) -> Answer:
        self.asked.append(request)
        if len(self.asked) <= self.times:
            return Answer(429, BUSY, self.retry_after)
        return Answer(200, "{}")

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


@pytest.mark.parametrize("verb", ["get", "list", "create", "update", "patch", "delete"])
async def test_a_cache_that_is_being_filled_costs_a_wait_and_not_the_pass(verb: str) -> None:
    server = Busy(2)
    answer = await patient(server.send, server.sleep)(Request(verb, "RayCluster", "/r"))
    assert answer.status == 200
    assert server.waits == [1.0, 1.0]


async def test_the_wait_is_the_one_that_was_asked_for_within_bounds() -> None:
    short, long = Busy(1, retry_after=2.0), Busy(1, retry_after=3600.0)
    for server in (short, long):
        await patient(server.send, server.sleep)(Request("list", "Pod", "/p"))
    assert (short.waits, long.waits) == ([2.0], [LONGEST_WAIT_SECONDS])


async def test_a_server_that_stays_busy_is_believed_in_the_end() -> None:
    server = Busy(1000)
    answer = await patient(server.send, server.sleep)(Request("list", "Pod", "/p"))
    assert answer.status == 429
    assert len(server.asked) == MOST_REFUSALS + 1


async def test_a_lease_is_not_waited_for() -> None:
    server = Busy(1)
    answer = await patient(server.send, server.sleep)(Request("update", "Lease", "/l"))
    assert (answer.status, server.waits) == (429, [])


@pytest.mark.parametrize("status", [200, 403, 404, 409, 422, 500, 503])
async def test_any_other_answer_is_passed_on_at_once(status: int) -> None:
    asked: list[Request] = []

    async def send(request: Request) -> Answer:
        asked.append(request)
        return Answer(status, "{}")

    server = Busy(0)
    answer = await patient(send, server.sleep)(Request("create", "Pod", "/p"))
    assert (answer.status, len(asked), server.waits) == (status, 1, [])
