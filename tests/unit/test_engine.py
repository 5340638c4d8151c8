"""The batching engine computes what a plain model computes, for any mixture of requests."""

import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
import torch

from harborrl_trainer.native.decoder import Decoder
from harborrl_trainer.native.engine import Engine, Request
from harborrl_trainer.native.kv_slots import Piece
from harborrl_trainer.native.sampling import SamplingParams, draw, uniforms
from harborrl_trainer.native.session import Generation
from support import tiny_model

SLOTS = 4
COMMON = list(range(100, 148))


@pytest.fixture(scope="module")
def plain() -> Any:
    return tiny_model.model("sdpa")


@pytest.fixture
def engine() -> Iterator[Engine]:
    running = Engine(_decoder(), slots=SLOTS, stop_tokens=tiny_model.STOPS)
    yield running
    running.close()


def test_prefill_and_decode_give_the_logits_of_the_plain_model(plain: Any) -> None:
    decoder = _decoder()
    decoder.prefill([Piece(0, 0, tuple(COMMON))])
    decoder.kv.keep_as_prefix(0, COMMON)
    decoder.kv.after_prefix = [True, False, True, False]
    sequences = {0: [*COMMON, 5, 6, 7], 1: [9, 8], 2: [*COMMON, 60]}
    own = {0: (5, 6, 7), 1: (9, 8), 2: (60,)}
    logits = decoder.prefill([Piece(slot, 0, own[slot]) for slot in sequences])
    for row, sequence in zip(logits, sequences.values(), strict=True):
        torch.testing.assert_close(row, _plain_logits(plain, sequence), rtol=1e-4, atol=1e-4)
    for slots in ([0, 1, 2], [2]):  # a dense range of slots, and a picked row
        lengths = [len(own[slot]) for slot in slots]
        logits = decoder.decode(slots, [33] * len(slots), lengths)
        for slot, row in zip(slots, logits, strict=True):
            torch.testing.assert_close(row, _plain_logits(plain, [*sequences[slot], 33]), rtol=1e-4, atol=1e-4)


def test_a_long_prefill_is_cut_into_passes_without_a_difference(plain: Any) -> None:
    sequence = [2 + at % 250 for at in range(1200)]
    logits = _decoder(capacity=1300).prefill([Piece(0, 0, (5,)), Piece(1, 0, tuple(sequence))])
    torch.testing.assert_close(logits[1], _plain_logits(plain, sequence), rtol=1e-3, atol=1e-3)


def test_recorded_log_probs_are_those_of_the_tempered_plain_model(engine: Engine, plain: Any) -> None:
    prompts = [[*COMMON, at] for at in range(2, 9)]  # more than there are slots
    for prompt, answer in zip(prompts, _generate(engine, prompts, temperature=0.7), strict=True):
        _check_log_probs(plain, prompt, answer, temperature=0.7)


def test_a_next_turn_computes_only_what_was_appended(engine: Engine, plain: Any) -> None:
    [first] = _generate(engine, [[*COMMON, 5]])
    before = engine.counters.computed_prompt_tokens
    prompt = [*COMMON, 5, *first.token_ids, 50, 51, 52]
    [second] = _generate(engine, [prompt])
    assert engine.counters.computed_prompt_tokens - before == 1 + 3  # the last sampled token had not been fed back
    _check_log_probs(plain, prompt, second)


def test_a_group_computes_its_prompt_once(engine: Engine) -> None:
    _generate(engine, [[*COMMON, 5]] * SLOTS)
    assert engine.counters.prompt_tokens == SLOTS * (len(COMMON) + 1)
    assert engine.counters.computed_prompt_tokens == len(COMMON) + 1


def test_a_prompt_that_shares_nothing_runs_beside_those_that_do(engine: Engine, plain: Any) -> None:
    _generate(engine, [[*COMMON, 5], [*COMMON, 6]])
    prompts = [[*COMMON, 7], [9, 9, 9], [*COMMON, 8]]
    for prompt, answer in zip(prompts, _generate(engine, prompts), strict=True):
        _check_log_probs(plain, prompt, answer)


def test_a_seed_gives_the_same_answer_alone_and_in_a_batch(engine: Engine) -> None:
    [alone] = _generate(engine, [[*COMMON, 5]], seed=7)
    batch = _generate(engine, [[*COMMON, 6], [*COMMON, 5], [3, 4]], seed=7)
    assert batch[1].token_ids == alone.token_ids


def test_an_answer_ends_with_its_stop_token_or_at_its_limit(engine: Engine) -> None:
    answers = _generate(engine, [[*COMMON, 2 + at] for at in range(60)], max_tokens=40)
    assert {answer.finish_reason for answer in answers} == {"stop", "length"}
    for answer in answers:
        stopped = answer.token_ids[-1] in tiny_model.STOPS
        assert (answer.finish_reason == "stop") is stopped
        assert stopped or len(answer.token_ids) == 40
        assert not tiny_model.STOPS & set(answer.token_ids[:-1])


def test_new_weights_change_what_is_sampled_and_forget_the_cache(engine: Engine) -> None:
    prompt = [*COMMON, 5]
    _generate(engine, [prompt, [*COMMON, 6]])
    other = tiny_model.model("sdpa", seed=9)
    _load(engine, dict(other.named_parameters()), version=3)
    [answer] = _generate(engine, [prompt])
    assert answer.weight_version == 3
    _check_log_probs(other, prompt, answer)


def test_weights_that_lack_a_parameter_are_refused_and_the_old_ones_stay(engine: Engine) -> None:
    with pytest.raises(ValueError, match="weights lack"):
        _load(engine, {}, version=1)
    assert engine.version == 0


def test_a_request_that_breaks_the_batch_is_answered_with_the_error_and_the_next_one_works(engine: Engine) -> None:
    with pytest.raises(IndexError):
        _generate(engine, [[100_000]])
    assert _generate(engine, [[5, 6]])


def test_a_shared_beginning_that_cannot_be_computed_leaves_no_request_without_an_answer(engine: Engine) -> None:
    with pytest.raises(IndexError):
        _generate(engine, [[*[100_000] * 40, at] for at in range(2, 2 * SLOTS)])
    assert _generate(engine, [[5, 6]])


def test_drawing_follows_the_distribution() -> None:
    logits = torch.log(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    source = uniforms(1, 0)
    rows = 4000
    tokens, log_probs = draw(logits.expand(rows, 4), [SamplingParams()] * rows, [source.random() for _ in range(rows)])
    shares = [tokens.count(token) / rows for token in range(4)]
    assert shares == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.03)
    assert log_probs[0] == pytest.approx(float(logits[tokens[0]]), abs=1e-5)


def test_the_nucleus_keeps_the_likeliest_tokens_and_renormalises() -> None:
    logits = torch.log(torch.tensor([[0.1, 0.2, 0.3, 0.4]]))
    drawn = {draw(logits, [SamplingParams(top_p=0.6)], [u / 50])[0][0] for u in range(50)}
    assert drawn == {2, 3}
    assert draw(logits, [SamplingParams(top_p=0.6)], [0.99])[1][0] == pytest.approx(
        float(torch.log(torch.tensor(0.4 / 0.7))), abs=1e-5
    )


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_the_ends_of_the_unit_interval_draw_tokens_that_exist(uniform: float) -> None:
    assert 0 <= draw(torch.zeros(1, 7), [SamplingParams()], [uniform])[0][0] < 7


def _decoder(capacity: int = 256) -> Decoder:
    return Decoder(tiny_model.model(), slots=SLOTS, capacity=capacity, cache_type=torch.float32)


def _plain_logits(plain: Any, sequence: Sequence[int]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = plain(torch.tensor([list(sequence)])).logits[0, -1]
    return logits


def _check_log_probs(plain: Any, prompt: list[int], answer: Generation, temperature: float = 1.0) -> None:
    with torch.no_grad():
        logits = plain(torch.tensor([[*prompt, *answer.token_ids]])).logits[0] / temperature
    expected = torch.log_softmax(logits, -1)
    for at, (token, log_prob) in enumerate(zip(answer.token_ids, answer.log_probs, strict=True)):
        assert log_prob == pytest.approx(float(expected[len(prompt) + at - 1, token]), abs=1e-3)


def _generate(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    *,
    temperature: float = 1.0,
    max_tokens: int = 12,
    seed: int | None = 1,
) -> list[Generation]:
    params = SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=seed)
    futures: list[Future[Generation]] = [Future() for _ in prompts]
    for prompt, future in zip(prompts, futures, strict=True):
        engine.submit(Request("r", tuple(prompt), params, lambda value, to=future: _settle(to, value)))  # type: ignore[misc]  # a default binds this future
    return [future.result(timeout=180) for future in futures]


def _load(engine: Engine, weights: dict[str, torch.Tensor], version: int) -> None:
    answer: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    engine.load(weights, version, answer.put)
    error = answer.get(timeout=180)
    if error is not None:
        raise error


def _settle(future: "Future[Generation]", value: Generation | Exception) -> None:
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
