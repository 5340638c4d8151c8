"""Tokens in, tokens out: what was sampled is kept exactly, and only what was appended is rendered."""

import os
from typing import Any

import pytest
from transformers import AutoTokenizer

from harborrl_trainer.native.chat import ChatRenderer, TemplateNotAppendOnly
from harborrl_trainer.native.session import (
    ContextLengthExceeded,
    CutByLength,
    FinishReason,
    Generation,
    HistoryAltered,
    Session,
    SessionError,
    trajectory,
)
from support import tiny_model

ASK = [{"role": "system", "content": "Shell."}, {"role": "user", "content": "List files."}]
OBSERVATION = {"role": "user", "content": "a.txt\nb.txt"}


@pytest.fixture(scope="module", params=["byte-level", "SmolLM2"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    """A tokenizer of one token a byte, and the real one where its model is at hand (3.5 MB: too large to keep here)."""
    if request.param == "byte-level":
        return tiny_model.tokenizer()
    directory = os.environ.get("HARBORRL_MODEL_DIR")
    if not directory:
        pytest.skip(
            "HARBORRL_MODEL_DIR is not set: point it at SmolLM2-135M-Instruct, as it lies below models/ on the volume"
            " of the quickstart or as examples/quickstart/convert_model.py makes it"
        )
    return AutoTokenizer.from_pretrained(directory)


@pytest.fixture(scope="module")
def renderer(tokenizer: Any) -> ChatRenderer:
    return ChatRenderer(tokenizer)


def test_a_first_prompt_is_what_the_template_gives(tokenizer: Any, renderer: ChatRenderer) -> None:
    assert Session("s", 1000).next_prompt(ASK, renderer) == _template(tokenizer, ASK)


def test_without_a_system_message_the_templates_own_one_stays_through_all_turns(
    tokenizer: Any, renderer: ChatRenderer
) -> None:
    session = Session("s", 1000)
    ask = ASK[1:]
    _turn(session, renderer, tokenizer, ask, "ls")
    prompt = session.next_prompt([*session.messages, OBSERVATION], renderer)
    assert tokenizer.decode(prompt).count(tiny_model.DEFAULT_SYSTEM) == 1
    assert prompt == _template(tokenizer, [*ask, {"role": "assistant", "content": "ls"}, OBSERVATION])


def test_three_turns_join_to_what_the_template_gives_for_the_whole(tokenizer: Any, renderer: ChatRenderer) -> None:
    session = Session("s", 1000)
    _turn(session, renderer, tokenizer, ASK, "ls")
    _turn(session, renderer, tokenizer, [*session.messages, OBSERVATION], "cat a.txt")
    prompt = _turn(session, renderer, tokenizer, [*session.messages, OBSERVATION], "done")
    assert prompt == _template(tokenizer, session.messages[:-1])


def test_the_mask_is_one_on_every_sampled_token_and_zero_on_all_between(tokenizer: Any, renderer: ChatRenderer) -> None:
    session = Session("s", 1000)
    first = _turn(session, renderer, tokenizer, ASK, "ls")
    second = _turn(session, renderer, tokenizer, [*session.messages, OBSERVATION], "cat a.txt")
    done = trajectory(session)
    assert list(done.prompt_ids) == first
    assert [*done.prompt_ids, *done.response_ids] == session.token_ids
    one, other = ([*_ids(tokenizer, text), tokenizer.eos_token_id] for text in ("ls", "cat a.txt"))
    between = len(second) - len(first) - len(one)
    assert list(done.loss_mask) == [1] * len(one) + [0] * between + [1] * len(other)
    sampled = [token for token, wanted in zip(done.response_ids, done.loss_mask, strict=True) if wanted]
    assert sampled == [*one, *other]
    assert [value != 0.0 for value in done.log_probs] == [wanted == 1 for wanted in done.loss_mask]


def test_tokens_that_a_fresh_encoding_would_not_give_are_kept_as_sampled(
    tokenizer: Any, renderer: ChatRenderer
) -> None:
    session = Session("s", 1000)
    start = tokenizer.bos_token_id  # a special token inside an answer vanishes from the text
    sampled = (*_ids(tokenizer, "l"), start, *_ids(tokenizer, "s"), tokenizer.eos_token_id)
    prompt = session.next_prompt(ASK, renderer)
    session.record(ASK, prompt, _generation(sampled), renderer.text(sampled))
    assert session.messages[-1]["content"] == "ls"
    following = session.next_prompt([*session.messages, OBSERVATION], renderer)
    assert following[: len(prompt) + len(sampled)] == [*prompt, *sampled]


def test_an_answer_that_stopped_on_another_token_gets_the_templates_end_of_turn_inserted(
    tokenizer: Any, renderer: ChatRenderer
) -> None:
    session = Session("s", 1000)
    prompt = session.next_prompt(ASK, renderer)
    sampled = tuple(_ids(tokenizer, "ls"))
    session.record(ASK, prompt, _generation(sampled), "ls")
    following = session.next_prompt([*session.messages, OBSERVATION], renderer)
    assert following == _template(tokenizer, [*session.messages, OBSERVATION])
    session.record([*session.messages, OBSERVATION], following, _generation((tokenizer.eos_token_id,)), "")
    assert trajectory(session).loss_mask[: len(sampled) + 1] == (*[1] * len(sampled), 0)


def test_an_altered_history_is_refused_and_changes_nothing(tokenizer: Any, renderer: ChatRenderer) -> None:
    session = Session("s", 1000)
    _turn(session, renderer, tokenizer, ASK, "ls")
    before = list(session.token_ids)
    altered = [*ASK, {"role": "assistant", "content": "ls -la"}, OBSERVATION]
    with pytest.raises(HistoryAltered, match="message 2 differs"):
        session.next_prompt(altered, renderer)
    assert session.token_ids == before


@pytest.mark.parametrize("appended", [[], [{"role": "assistant", "content": "I was here"}]])
def test_a_continuation_must_append_something_that_the_model_did_not_say(
    tokenizer: Any, renderer: ChatRenderer, appended: list[dict[str, str]]
) -> None:
    session = Session("s", 1000)
    _turn(session, renderer, tokenizer, ASK, "ls")
    with pytest.raises(HistoryAltered):
        session.next_prompt([*session.messages, *appended], renderer)


def test_a_turn_cut_by_length_ends_the_session(renderer: ChatRenderer) -> None:
    session = Session("s", 1000)
    prompt = session.next_prompt(ASK, renderer)
    session.record(ASK, prompt, _generation((50, 51), "length"), "xy")
    with pytest.raises(CutByLength):
        session.next_prompt([*session.messages, OBSERVATION], renderer)
    assert trajectory(session).cut_by_length
    assert trajectory(session).loss_mask == (1, 1)


def test_a_prompt_without_room_for_one_token_exceeds_the_context(renderer: ChatRenderer) -> None:
    length = len(Session("s", 1000).next_prompt(ASK, renderer))
    assert Session("s", length + 1).next_prompt(ASK, renderer)
    with pytest.raises(ContextLengthExceeded):
        Session("s", length).next_prompt(ASK, renderer)


def test_no_messages_is_refused(renderer: ChatRenderer) -> None:
    with pytest.raises(SessionError):
        Session("s", 1000).next_prompt([], renderer)


def test_a_template_that_rewrites_the_past_is_found_out() -> None:
    counting = tiny_model.tokenizer()
    counting.chat_template = "{{ messages | length }}" + tiny_model.CHAT_TEMPLATE
    with pytest.raises(TemplateNotAppendOnly):
        ChatRenderer(counting)


def _turn(session: Session, renderer: ChatRenderer, tokenizer: Any, messages: list[Any], text: str) -> list[int]:
    prompt = session.next_prompt(messages, renderer)
    session.record(messages, prompt, _generation((*_ids(tokenizer, text), tokenizer.eos_token_id)), text)
    return prompt


def _generation(sampled: tuple[int, ...], finish: FinishReason = "stop") -> Generation:
    return Generation(sampled, tuple(-0.5 for _ in sampled), finish, weight_version=1)


def _ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def _template(tokenizer: Any, messages: list[Any]) -> list[int]:
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return _ids(tokenizer, text)
