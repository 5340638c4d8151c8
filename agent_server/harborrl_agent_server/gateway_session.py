"""The one way from an agent to the model, for one trial: every agent's requests pass here, wherever the agent runs."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from harborrl_agent_server.contract import ExitStatus
from harborrl_agent_server.errors import ModelEndpointError
from harborrl_agent_server.gateway_upstream import ContextLengthExceeded, Reply, TurnRefusedError, complete
from harborrl_agent_server.gateway_wire import assistants, overruled, upstream_body, verbatim

REFUSALS = 10
"""Requests from a sandbox that are none, or that the session refuses, before its trial ends: each may be large."""


class EpisodeOver(Exception):  # noqa: N818 - a limit that was reached, and a normal end of a trial
    """The sequence has no room for another turn, or its last one was cut by length."""

    def __init__(self, message: str, cut: Reply | None = None) -> None:
        super().__init__(message)
        self.cut = cut
        """The turn that was cut. No agent acts on it: half a command must not run."""


class SessionClosedError(Exception):
    """The agent's phase is over, or has not begun: nobody may ask the model."""


@dataclass(frozen=True)
class Upstream:
    """Where the session is, and how the training wants it asked."""

    url: str
    """Up to and including `/v1`."""
    model: str
    sampling_params: Mapping[str, Any] = field(default_factory=dict)
    max_seq_len: int | None = None
    """Tokens of prompt and completions together."""
    api_key: str = field(default="dummy", repr=False)


class ModelSession:
    """One trial's session: puts the training's parameters on the wire, counts, and ends the episode where it is full.

    Closed until the agent's phase opens it. `over` is set once a turn was refused for good: `failure` says that the
    endpoint broke, `end` that the policy used up its sequence. `inside`: whatever runs in the sandbox may ask.
    """

    def __init__(
        self,
        upstream: Upstream,
        client: httpx.AsyncClient,
        progress: dict[str, Any],
        warnings: list[str],
        *,
        inside: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.upstream = upstream
        self.failure: ModelEndpointError | None = None
        self.end: ExitStatus | None = None
        self.over = asyncio.Event()
        self.is_open = False
        self.pending = 0
        """Requests from the sandbox that are not answered yet."""
        self.asked = 0
        """Requests that were sent to the session, answered or not."""
        self.turns = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.inside = inside
        self._refusals = 0
        self._client = client
        self._progress = progress
        self._warnings = warnings
        self._warned: set[str] = set()
        self.reading = asyncio.Lock()
        """Held from the body of a request to its answer: unpacked, a body takes many times its bytes."""
        self._turn = asyncio.Lock()
        self._served: list[dict[str, Any]] = []
        self._examples: int | None = None
        self._asking: asyncio.Task[Reply] | None = None
        self._clock = clock

    def open(self) -> None:
        self.is_open = True
        self._progress.setdefault("turns", 0)

    def close(self) -> None:
        """No turn from here on; one that is under way is broken off, so that the engine stops working on it."""
        self.is_open = False
        if self._asking is not None:
            self._asking.cancel()

    async def hang_up(self) -> None:
        """The trial is over: its connections go with it."""
        await self._client.aclose()

    async def complete(self, asked: Mapping[str, Any]) -> Reply:
        """One turn; a second request waits for the first, because a session's history is one line.

        Raises `EpisodeOver`, `ModelEndpointError` and `SessionClosedError`.
        """
        async with self._turn:
            self._refuse_what_cannot_be()
            self._say_once(overruled(asked, self.upstream.sampling_params))
            body = upstream_body(asked, model=self.upstream.model, sampling_params=self.upstream.sampling_params)
            if self._examples is None:
                self._examples = assistants(body["messages"])
            body["messages"] = verbatim(body["messages"], self._served, self._examples)
            reply = await self._asked(body)
            self._count(reply, with_tools=bool(asked.get("tools")))
            self._served.append(reply.message)
            return self._judged(reply)

    def _refuse_what_cannot_be(self) -> None:
        if not self.is_open:
            raise SessionClosedError("the agent's phase is over; the model answers no more in this trial")
        if self.failure is not None:
            raise self.failure
        if self.end is not None:
            self.over.set()
            raise EpisodeOver("the sequence is full: this trial has no further turn")

    async def _asked(self, body: dict[str, Any]) -> Reply:
        self.asked += 1
        started = self._clock()
        url = f"{self.upstream.url}/chat/completions"
        self._asking = asyncio.ensure_future(complete(self._client, url, body, api_key=self.upstream.api_key))
        try:
            return await self._asking
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise SessionClosedError("the trial was ended while the model answered") from None
        except ContextLengthExceeded as error:
            self._full()
            self.over.set()
            raise EpisodeOver(str(error)) from error
        except TurnRefusedError as error:
            raise self._refused(error) from error
        except ModelEndpointError as error:
            raise self._failed(error) from error
        except Exception as error:
            # Whatever else breaks between an agent and its model is no doing of the policy's.
            raise self._failed(
                ModelEndpointError(f"the model cannot be asked: {type(error).__name__}: {error}")
            ) from error
        finally:
            self._asking = None
            self._add("model_query_time_sum", self._clock() - started)

    def _refused(self, error: TurnRefusedError) -> ModelEndpointError:
        """A host-side agent's history is our own doing, one from a sandbox may be the policy's.

        The policy must not choose to have its trial thrown away: its agent is told, and the trial counts.
        """
        if not self.inside:
            return self._failed(ModelEndpointError(str(error)))
        self.misheard()
        return error

    def misheard(self) -> None:
        """The sandbox has sent what is no request, or none that the session takes."""
        self._refusals += 1
        if self._refusals >= REFUSALS and self.end is None:
            self.end = self._progress["end"] = ExitStatus.AGENT_ERROR
            self.over.set()

    def _failed(self, error: ModelEndpointError) -> ModelEndpointError:
        self.failure = error
        self.over.set()
        return error

    def _judged(self, reply: Reply) -> Reply:
        if reply.finish_reason == "length":
            # The session refuses to go on after a cut turn.
            self._full()
            self.over.set()
            raise EpisodeOver("the model's reply was cut by length", cut=reply)
        limit = self.upstream.max_seq_len
        if limit is not None and reply.total_tokens is None:
            self._say_once({"max_seq_len: the session server reports no usage, so it is not enforced"}, prefix="")
        if limit is not None and (reply.total_tokens or 0) >= limit:
            self._full()
        return reply

    def _full(self) -> None:
        self.end = ExitStatus.SEQUENCE_LENGTH_LIMIT
        self._progress["end"] = self.end

    def _count(self, reply: Reply, *, with_tools: bool) -> None:
        self.turns += 1
        self._add("turns", 1)
        if with_tools:
            self._add("tool_calls", len(reply.message.get("tool_calls") or ()))
        self.prompt_tokens += reply.prompt_tokens or 0
        self.completion_tokens += reply.completion_tokens or 0
        if reply.completion_tokens is not None:
            self._add("completion_tokens", reply.completion_tokens)
        if reply.total_tokens is not None:
            self._progress["total_tokens"] = reply.total_tokens
        self._progress["model_query_time_avg"] = self._progress["model_query_time_sum"] / self.turns

    def _add(self, key: str, amount: float) -> None:
        self._progress[key] = self._progress.get(key, 0) + amount

    def _say_once(self, what: set[str], prefix: str = "the training decides, not the agent: ") -> None:
        new = sorted(what - self._warned)
        self._warned |= what
        self._warnings.extend(f"{prefix}{name[:80]}" for name in new[:10])
