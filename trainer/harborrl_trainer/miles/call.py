"""One run of a trial, as the wrapper and the agent function share it.

The first sees Miles' generate from outside, the second is called from within.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

from harborrl_trainer.rollout.agent_client import AgentServerError
from harborrl_trainer.rollout.outcomes import TrialReply


class NotWanted(AgentServerError):  # noqa: N818 - named after what happened
    """Nobody waits for this trial any more: enough groups were collected, or the run has ended."""

    retryable = False


class Call:
    """`sent` is set when the session is there and the trial is on its way, `answered` when nothing more is awaited."""

    def __init__(
        self, ceiling_s: float, *, evaluation: bool = False, unwanted: Callable[[], bool] = lambda: False
    ) -> None:
        self.ceiling_s = ceiling_s
        self.evaluation = evaluation
        self.unwanted = unwanted
        """Whether Miles has begun to throw away what is in flight."""
        self.session = ""
        self.reply: TrialReply | None = None
        self.error: AgentServerError | None = None
        self.sent = asyncio.Event()
        self.answered = asyncio.Event()
        self.stopped = asyncio.Event()
        self.why_stopped = ""

    def stop(self, why: str) -> None:
        self.why_stopped = self.why_stopped or why
        self.stopped.set()

    async def perform(self, request: Coroutine[Any, Any, TrialReply]) -> None:
        """Keeps the reply, or the error in its place. Being stopped closes the connection, which frees the slot."""
        self.sent.set()
        posted = asyncio.ensure_future(request)
        stopped = asyncio.ensure_future(self.stopped.wait())
        try:
            await asyncio.wait({posted, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not posted.done():
                raise NotWanted(self.why_stopped)
            self.reply = posted.result()
        except AgentServerError as error:
            self.error = error
        finally:
            posted.cancel()
            stopped.cancel()
            await asyncio.gather(posted, stopped, return_exceptions=True)
            self.answered.set()


CURRENT: "ContextVar[Call | None]" = ContextVar("harborrl_call", default=None)
