"""Sequences packed with shared beginnings train exactly as they would alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harborrl_trainer.native import tree
from harborrl_trainer.native.policy import Policy, PolicyConfig, TrainSample
from support import tiny_model

SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=30), min_size=1, max_size=8)


@given(SEQUENCES, st.integers(1, 8))
def test_every_token_of_every_sequence_stands_at_its_place(sequences: list[list[int]], shortest: int) -> None:
    packed = tree.pack(sequences, shortest)
    positions = packed.positions()[0].tolist()
    for sequence, places in zip(sequences, packed.places, strict=True):
        assert [packed.tokens[place] for place in places] == sequence
        assert [positions[place] for place in places] == list(range(len(sequence)))


@given(SEQUENCES, st.integers(1, 8))
def test_a_node_sees_exactly_the_tokens_of_its_own_sequences(sequences: list[list[int]], shortest: int) -> None:
    packed = tree.pack(sequences, shortest)
    chains = {tuple(places) for places in packed.places}
    for node in packed.nodes:
        before = tuple(at for part in node.ancestors for at in range(part.start, part.stop))
        chain = before + tuple(range(node.start, node.start + node.length))
        assert any(places[: len(chain)] == chain for places in chains)


def test_a_shared_beginning_stands_once() -> None:
    prefix = list(range(20))
    packed = tree.pack([[*prefix, 50, 51], [*prefix, 60], [*prefix, 60]])
    assert len(packed.tokens) == 20 + 2 + 1 + 1


def test_branches_that_part_early_stay_apart() -> None:
    assert len(tree.pack([[1, 2, 3], [1, 2, 4]], shortest_shared=8).nodes) == 3


def test_packed_log_probs_and_gradients_are_those_of_the_sequences_alone() -> None:
    samples = _samples()
    packed, alone = _policy(micro_batch_tokens=10_000), _policy(micro_batch_tokens=1)
    one, other = packed.train(samples), alone.train(samples)
    assert one.packed_tokens < other.packed_tokens / 2
    assert one.loss == pytest.approx(other.loss, abs=1e-6)
    assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-4)
    for first, second in zip(one.log_probs, other.log_probs, strict=True):
        assert first == pytest.approx(second, abs=1e-5)
    for first_weight, second_weight in zip(packed.model.parameters(), alone.model.parameters(), strict=True):
        torch.testing.assert_close(first_weight, second_weight, rtol=1e-4, atol=1e-6)


def test_packed_log_probs_are_those_of_plain_attention() -> None:
    samples = _samples()
    scored = _policy().score(samples)
    plain = tiny_model.model("sdpa")
    for sample, log_probs in zip(samples, scored, strict=True):
        with torch.no_grad():
            logits = plain(torch.tensor([sample.ids])).logits[0] / 0.8
        expected = torch.log_softmax(logits, -1)
        begin = len(sample.prompt_ids)
        for at in sample.trained:
            assert log_probs[at] == pytest.approx(float(expected[begin + at - 1, sample.response_ids[at]]), abs=1e-4)


def _policy(micro_batch_tokens: int = 64) -> Policy:
    return Policy(tiny_model.model(), config(micro_batch_tokens=micro_batch_tokens))


def config(micro_batch_tokens: int = 64, global_batch_size: int = 8) -> PolicyConfig:
    return PolicyConfig(
        lr=1e-3,
        betas=(0.9, 0.95),
        weight_decay=0.0,
        clip_grad=1.0,
        eps_low=0.2,
        eps_high=0.28,
        temperature=0.8,
        global_batch_size=global_batch_size,
        micro_batch_tokens=micro_batch_tokens,
    )


def _samples() -> list[TrainSample]:
    generator = torch.Generator().manual_seed(3)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(2, 258, (count,), generator=generator).tolist())

    common, result = ids(40), []
    for group in range(2):
        prompt = (*common, *ids(10))
        for member in range(4):
            response = ids(6 + member)
            mask = (1, 1, 0, 0, *[1] * (len(response) - 4))
            result.append(TrainSample(group, prompt, response, mask, (-5.0,) * len(response), member - 1.5))
    return result
