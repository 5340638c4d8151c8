"""A session is one trajectory: the exact token ids in order, which the model sampled, and with what log-prob."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harborrl_trainer.native.chat import ChatRenderer, Message

FinishReason = Literal["stop", "length", "abort"]
"""`abort`: the inference engine gave the answer up half-way; its trial is not trained on."""


class SessionError(Exception):
    """A request that the session must refuse; `status` is the HTTP status and `code` the OpenAI error code."""

    status = 400
    code = "invalid_request"


class HistoryAltered(SessionError):  # noqa: N818 - named after what the client did
    code = "history_not_append_only"


class ContextLengthExceeded(SessionError):  # noqa: N818 - named as OpenAI names it
    code = "context_length_exceeded"


class SessionClosed(SessionError):  # noqa: N818 - named after what happened
    status = 404
    code = "session_not_found"


class CutByLength(SessionError):  # noqa: N818 - named after what happened
    status = 409
    code = "continued_after_length"


@dataclass(frozen=True)
class Turn:
    """One model call. `start` is the position of its first sampled token in the session's ids."""

    start: int
    sampled: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_reason: FinishReason
    weight_version: int


@dataclass(frozen=True)
class Generation:
    """What the engine returns for one prompt; log-probs are those of the distribution that was sampled from."""

    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finish_reason: FinishReason
    weight_version: int


@dataclass
class Session:
    id: str
    max_tokens: int
    """Longest trajectory, prompt included (`maxSeqLen`)."""
    token_ids: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    """All messages so far, the model's answers included."""
    turns: list[Turn] = field(default_factory=list)

    def next_prompt(self, messages: Sequence[Message], renderer: ChatRenderer) -> list[int]:
        """Ids for the engine if `messages` continues this session; changes nothing. Raises a SessionError."""
        if not messages:
            raise SessionError("messages is empty")
        if not self.turns:
            return self._fitting(renderer.opening(messages))
        if list(messages[: len(self.messages)]) != self.messages:
            raise HistoryAltered(
                f"message {_first_difference(messages, self.messages)} differs from what this session holds; "
                "replay the model's messages verbatim and only append"
            )
        appended = messages[len(self.messages) :]
        if not appended or any(message.get("role") == "assistant" for message in appended):
            raise HistoryAltered("appended messages must be there and must not be the assistant's")
        if self.turns[-1].finish_reason == "length":
            raise CutByLength("the last answer was cut by its token limit: this trajectory has ended")
        joint = renderer.continuation(self.messages, appended, self.token_ids[-1])
        return self._fitting([*self.token_ids, *joint])

    def answered_before(self, messages: Sequence[Message]) -> bool:
        """The client repeats its last request, having lost the answer: it gets the recorded one, not a new sample."""
        return bool(self.turns) and list(messages) == self.messages[:-1]

    def record(self, messages: Sequence[Message], prompt: Sequence[int], answer: Generation, text: str) -> Turn:
        """Appends one model call whose prompt came from `next_prompt` with the same messages."""
        turn = Turn(
            start=len(prompt),
            sampled=answer.token_ids,
            log_probs=answer.log_probs,
            finish_reason=answer.finish_reason,
            weight_version=answer.weight_version,
        )
        self.token_ids = [*prompt, *answer.token_ids]
        self.messages = [*(dict(message) for message in messages), {"role": "assistant", "content": text}]
        self.turns.append(turn)
        return turn

    def room(self, prompt: Sequence[int]) -> int:
        return self.max_tokens - len(prompt)

    def _fitting(self, prompt: list[int]) -> list[int]:
        if self.room(prompt) < 1:
            raise ContextLengthExceeded(
                f"the prompt has {len(prompt)} tokens and a trajectory may have {self.max_tokens}"
            )
        return prompt


@dataclass(frozen=True)
class Trajectory:
    """A finished session as training reads it. All but `prompt_ids` cover the response, position by position."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    """1 on every sampled token, 0 on everything that the template or the environment put in between."""
    log_probs: tuple[float, ...]
    """0.0 where the mask is 0."""
    weight_versions: tuple[int, ...]
    """One a turn."""
    cut_by_length: bool


def trajectory(session: Session) -> Trajectory:
    """Needs at least one turn."""
    begin = session.turns[0].start
    length = len(session.token_ids) - begin
    mask, log_probs = [0] * length, [0.0] * length
    for turn in session.turns:
        at = turn.start - begin
        mask[at : at + len(turn.sampled)] = [1] * len(turn.sampled)
        log_probs[at : at + len(turn.sampled)] = turn.log_probs
    return Trajectory(
        prompt_ids=tuple(session.token_ids[:begin]),
        response_ids=tuple(session.token_ids[begin:]),
        loss_mask=tuple(mask),
        log_probs=tuple(log_probs),
        weight_versions=tuple(turn.weight_version for turn in session.turns),
        cut_by_length=session.turns[-1].finish_reason == "length",
    )


def _first_difference(given: Sequence[Mapping[str, Any]], held: Sequence[Mapping[str, Any]]) -> int:
    pairs = zip(given, held, strict=False)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(given), len(held)))
