"""Chat template to token ids by difference: what was appended is rendered, what was sampled is never re-encoded."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Message = Mapping[str, Any]

PROBE_ANSWER = "a probe answer"


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is used here."""

    def apply_chat_template(self, conversation: list[dict[str, Any]], **options: Any) -> Any: ...
    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...
    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str: ...


class TemplateNotAppendOnly(ValueError):  # noqa: N818 - named after what the template does
    """The chat template renders earlier messages differently once later ones follow (it strips or reorders them)."""


class ChatRenderer:
    """Token ids for the messages of a session. Pure apart from the tokenizer, which it treats as constant."""

    def __init__(self, tokenizer: Tokenizer, template_options: Mapping[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._options = dict(template_options or {})
        self._end_of_turn = tuple(self._probe_end_of_turn())

    @property
    def end_of_turn(self) -> tuple[int, ...]:
        """What the template puts after an answer, for example `<|im_end|>` and a newline."""
        return self._end_of_turn

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """The first prompt of a session, generation prompt included."""
        return self._encode(self._render(messages, generation_prompt=True))

    def continuation(self, history: Sequence[Message], appended: Sequence[Message], last_sampled: int) -> list[int]:
        """The ids between the last sampled token and the next answer.

        `history` ends with the assistant's answer whose last token was `last_sampled`. A sampled end of turn is kept as
        sampled; where the model stopped on another token, the template's own end of turn is inserted.
        """
        before = self._render(history, generation_prompt=False)
        whole = self._render([*history, *appended], generation_prompt=True)
        if not whole.startswith(before):
            raise TemplateNotAppendOnly("the chat template changes earlier messages when later ones are appended")
        closing = self._end_of_turn[1:] if self._end_of_turn[:1] == (last_sampled,) else self._end_of_turn
        return [*closing, *self._encode(whole[len(before) :])]

    def text(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=True)

    def _probe_end_of_turn(self) -> list[int]:
        question = [{"role": "user", "content": "a probe question"}]
        before = self._render(question, generation_prompt=True) + PROBE_ANSWER
        whole = self._render([*question, {"role": "assistant", "content": PROBE_ANSWER}], generation_prompt=False)
        if not whole.startswith(before):
            raise TemplateNotAppendOnly("the chat template does not end a generation prompt where an answer begins")
        return self._encode(whole[len(before) :])

    def _render(self, messages: Sequence[Message], *, generation_prompt: bool) -> str:
        return str(
            self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=generation_prompt,
                **self._options,
            )
        )

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))
