"""HTTP client of the agent server: `/run`, `/flush`, `/health` (docs/contracts.md, "Agent server")."""

import asyncio
import json
import math
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from harborrl_trainer.rollout.outcomes import TrialReply

KEEPALIVE_PROBES = (("TCP_KEEPIDLE", 60), ("TCP_KEEPALIVE", 60), ("TCP_KEEPINTVL", 30), ("TCP_KEEPCNT", 5))
"""Seconds of silence before the first probe (by its names on Linux and on macOS), seconds between two, unanswered ones
before the connection is dead."""


def keepalive_options(names: Any = socket) -> list[tuple[int, int, int]]:
    """Socket options as far as this system (`names`: the socket module) has them.

    A trial is silent for hours: without probes a middlebox forgets the connection and both sides wait for ever.
    """
    known = [(getattr(names, name, None), value) for name, value in KEEPALIVE_PROBES]
    options = [(names.IPPROTO_TCP, option, value) for option, value in known if option is not None]
    return [(names.SOL_SOCKET, names.SO_KEEPALIVE, 1), *options]


KEEPALIVE_EXPIRY_S = 2.0
"""Below the 5 s after which uvicorn closes an idle connection, which is httpx' default too: a trial sent in that moment
would be lost without anybody knowing whether it runs."""

NOT_STARTED = ("X-HarborRL-Trial", "not-started")
"""Header of our own server's 503. A proxy says 503 too when the connection behind it broke, with a trial on it."""

CONTROL_TIMEOUT_S = 10.0
FLUSH_TRIES = 3
ABSENCE_S = 60.0
"""How long a server that takes no trials may be away: a pod that is restarted is back within. Shorter, and one restart
would abort every trial of a rollout, which ends the run."""
ABSENCE_PAUSE_S = 2.0


class AgentServerError(Exception):
    """No verdict on a trial came back. Never a reward; the trial may or may not have run."""

    retryable = True
    """Whether another run, in a fresh session, may not meet it again."""
    may_run = True
    """Whether the agent server may still be at this trial, in a slot that nobody counts here."""


class AgentServerUnreachable(AgentServerError):  # noqa: N818 - named after what happened
    """The connection failed or broke."""


class AgentServerAbsent(AgentServerUnreachable):
    """Nobody took the trial: no connection came about, or the server is shutting down. It has not run."""

    may_run = False


class TrialCeilingExceeded(AgentServerError):  # noqa: N818 - named after what happened
    """No answer within the client's ceiling, counted from the moment the request was sent."""


class BadRequest(AgentServerError):  # noqa: N818 - named after what happened
    """The trial cannot be put into JSON: a column of the data set holds what is none."""

    retryable = False
    may_run = False


class BadReply(AgentServerError):  # noqa: N818 - named after what happened
    """The server answered, but not with a trial outcome."""


@dataclass(frozen=True)
class Health:
    ok: bool
    capacity: int
    in_flight: int
    queued: int
    version: str = ""


class AgentClient:
    """One connection pool for all trials of a process; as wide as there are trials in flight.

    `/run` is never sent twice to a server that may have taken it: a request whose answer was lost may still be running.
    A server that was not reached, or that says itself that it starts nothing, is asked again for a while.
    """

    def __init__(
        self,
        url: str,
        *,
        ceiling_s: float,
        admin_secret: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`ceiling_s` is AGENT_TRIAL_TIMEOUT. `transport` replaces the network, for tests; `clock` counts seconds."""
        # Limits belong to the transport: httpx ignores `limits=` beside `transport=`.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=KEEPALIVE_EXPIRY_S)
        self.url = url.rstrip("/")
        self.ceiling_s = ceiling_s
        self._clock = clock
        self._pause = pause
        self._headers = {"Authorization": f"Bearer {admin_secret}"} if admin_secret else {}
        self._http = httpx.AsyncClient(
            transport=transport or httpx.AsyncHTTPTransport(limits=limits, socket_options=keepalive_options()),
            timeout=httpx.Timeout(None, connect=CONTROL_TIMEOUT_S),
        )

    async def run(self, request: Mapping[str, Any], *, ceiling_s: float | None = None) -> TrialReply:
        """One trial within `ceiling_s` (a re-run has less than the first). Raises an AgentServerError.

        Cancelling it closes the connection, which frees the slot of the agent server.
        """
        ceiling = self.ceiling_s if ceiling_s is None else ceiling_s
        started, left = self._clock(), ceiling
        while True:
            try:
                return await self._post(request, left)
            except AgentServerAbsent:
                left = ceiling - (self._clock() - started) - ABSENCE_PAUSE_S
                if ceiling - left > min(ABSENCE_S, ceiling / 2):
                    raise
            await self._pause(ABSENCE_PAUSE_S)

    async def _post(self, request: Mapping[str, Any], ceiling: float) -> TrialReply:
        body = {**request, "deadline_s": ceiling}
        try:
            sent = self._http.post(f"{self.url}/run", json=body, headers=self._headers)
            response = await asyncio.wait_for(sent, ceiling)
        except asyncio.TimeoutError as error:  # noqa: UP041 - not the builtin's alias before Python 3.11
            raise TrialCeilingExceeded(f"no answer within {ceiling:g} s") from error
        except (TypeError, ValueError) as error:
            raise BadRequest(f"the request is no JSON: {error}") from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise AgentServerAbsent(f"{self.url}: {type(error).__name__} {error}".rstrip()) from error
        except httpx.HTTPError as error:
            raise AgentServerUnreachable(f"{self.url}: {type(error).__name__} {error}".rstrip()) from error
        if response.status_code == 503:
            if response.headers.get(NOT_STARTED[0]) == NOT_STARTED[1]:
                raise AgentServerAbsent(f"{self.url}/run answered HTTP 503")
            raise AgentServerUnreachable(f"{self.url}/run answered HTTP 503, which is not the agent server's own")
        if response.status_code != 200:
            raise BadReply(f"{self.url}/run answered HTTP {response.status_code}")
        return parse_reply(response.content)

    async def await_room(self, seconds: float) -> bool:
        """Waits until the server answers and has a slot to spare, for a trial beside one that it may still run.

        A server that is reached and stays full lets it queue there. False: it was not reached within `seconds`.
        """
        started = self._clock()
        while True:
            try:
                health = await self.health()
                reached = True
                if health.in_flight + health.queued < health.capacity:
                    return True
            except BadReply:  # one that tells no capacity
                return True
            except AgentServerUnreachable:
                reached = False
            if self._clock() - started >= seconds:
                return reached
            await self._pause(ABSENCE_PAUSE_S)

    async def flush(self, session_server_instance_ids: Sequence[str]) -> int:
        """Cancels this trainer's trials; returns how many. Safe to repeat, and therefore tried three times.

        A server that knows only the singular field refuses the plural one, and is asked once for each id.
        """
        ids = list(session_server_instance_ids)
        try:
            return await self._flush({"session_server_instance_ids": ids})
        except BadReply:
            return sum([await self._flush({"session_server_instance_id": one}) for one in ids])

    async def _flush(self, body: Mapping[str, Any]) -> int:
        last: Exception | None = None
        for _ in range(FLUSH_TRIES):
            try:
                response = await self._http.post(
                    f"{self.url}/flush", json=body, headers=self._headers, timeout=CONTROL_TIMEOUT_S
                )
                if response.status_code in {400, 422}:
                    raise BadReply(f"{self.url}/flush does not understand {', '.join(body)}")
                response.raise_for_status()
                return cancelled_trials(response.json())
            except (httpx.HTTPError, ValueError) as error:
                last = error
        raise AgentServerUnreachable(f"{self.url}/flush failed {FLUSH_TRIES} times, last: {last}") from last

    async def health(self) -> Health:
        try:
            response = await self._http.get(f"{self.url}/health", timeout=CONTROL_TIMEOUT_S)
            response.raise_for_status()
            body = response.json()
            return Health(
                ok=body["status"] == "ok",
                capacity=int(body["capacity"]),
                in_flight=int(body.get("in_flight", 0)),
                queued=int(body.get("queued", 0)),
                version=str(body.get("version", "")),
            )
        except httpx.HTTPError as error:
            raise AgentServerUnreachable(f"{self.url}/health: {type(error).__name__} {error}".rstrip()) from error
        except (KeyError, TypeError, ValueError) as error:
            raise BadReply(f"{self.url}/health is not a health report: {error!r}") from error

    async def close(self) -> None:
        await self._http.aclose()


def cancelled_trials(body: Any) -> int:
    """What a flush reports; 0 where a foreign server reports nothing."""
    count = body.get("cancelled", 0) if isinstance(body, dict) else 0
    return count if isinstance(count, int) else 0


def parse_reply(content: bytes) -> TrialReply:
    """Reads what it knows and ignores the rest. NaN in the JSON text is kept for `judge` to refuse."""
    try:
        body = json.loads(content)
    except ValueError as error:
        raise BadReply("the reply to /run is not JSON") from error
    if not isinstance(body, dict) or not isinstance(body.get("exit_status"), str):
        raise BadReply("the reply to /run has no exit_status")
    exception = body.get("exception_type")
    return TrialReply(
        exit_status=body["exit_status"],
        reward=body.get("reward"),
        eval_report=_mapping(body.get("eval_report")),
        agent_metrics=_mapping(body.get("agent_metrics")),
        infra_failure=body.get("infra_failure") is True,
        exception_type=str(exception) if exception else None,
        trial_name=str(body.get("trial_name") or ""),
        message=str(body.get("message") or ""),
        phase_seconds=_numbers(_mapping(body.get("phase_seconds"))),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _numbers(value: Mapping[str, Any]) -> dict[str, float]:
    """Times from a foreign server: what is no finite number is left out, as a log line could not hold it."""
    found = {}
    for key, number in value.items():
        try:
            if isinstance(number, (int, float)) and math.isfinite(number):
                found[key] = float(number)
        except OverflowError:  # JSON's integers have no bound
            continue
    return found
