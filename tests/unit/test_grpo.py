import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harborrl_trainer.native import grpo


@given(st.floats(-10, 10), st.integers(1, 16))
def test_equal_rewards_give_exactly_zero_advantages(reward: float, size: int) -> None:
    assert torch.equal(grpo.group_advantages(torch.full((size,), reward)), torch.zeros(size))


def test_a_group_of_one_has_no_advantage() -> None:
    assert grpo.group_advantages(torch.tensor([0.7])).tolist() == [0.0]


def test_advantages_are_centred_and_scaled_by_the_unbiased_deviation() -> None:
    advantages = grpo.group_advantages(torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=torch.float64))
    expected = 0.5 / (3**-0.5 + 1e-6)
    assert advantages.tolist() == pytest.approx([-expected, expected, -expected, expected])


@given(st.lists(st.floats(0, 1), min_size=2, max_size=16))
def test_advantages_of_a_group_sum_to_zero(rewards: list[float]) -> None:
    advantages = grpo.group_advantages(torch.tensor(rewards, dtype=torch.float64))
    assert float(advantages.sum()) == pytest.approx(0.0, abs=1e-6)


def test_at_ratio_one_the_loss_is_minus_the_mean_advantage_and_still_has_a_gradient() -> None:
    log_probs = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    advantages = torch.tensor([1.0, -0.5, 0.25])
    losses = grpo.policy_loss(log_probs, log_probs.detach(), advantages, eps_low=0.2, eps_high=0.28)
    loss = grpo.token_mean(losses, torch.ones(3), 3)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
    assert float(loss.detach()) == pytest.approx(-float(advantages.mean()))
    assert log_probs.grad is not None
    assert log_probs.grad.tolist() == pytest.approx((-advantages / 3).tolist())


@pytest.mark.parametrize(
    ("ratio", "advantage", "passes"),
    [(1.5, 1.0, False), (1.5, -1.0, True), (0.5, 1.0, True), (0.5, -1.0, False), (1.27, 1.0, True), (0.81, -1.0, True)],
)
def test_the_clip_stops_only_the_gradient_that_would_go_further_away(
    ratio: float, advantage: float, passes: bool
) -> None:
    log_probs = torch.tensor([ratio]).log().requires_grad_()
    loss = grpo.policy_loss(log_probs, torch.zeros(1), torch.tensor([advantage]), eps_low=0.2, eps_high=0.28)
    loss.sum().backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
    assert log_probs.grad is not None
    assert bool(log_probs.grad.abs() > 0) is passes


def test_importance_weights_are_capped_and_carry_no_gradient() -> None:
    old = torch.tensor([0.0, 5.0, -1.0], requires_grad=True)
    weights = grpo.truncated_importance(old, torch.zeros(3), cap=2.0)
    assert weights.tolist() == pytest.approx([1.0, 2.0, 0.36787944])
    assert not weights.requires_grad


def test_a_batch_whose_every_token_is_masked_has_loss_zero() -> None:
    assert float(grpo.token_mean(torch.tensor([3.0, 4.0]), torch.zeros(2), 0)) == 0.0


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12), st.integers(1, 12))
def test_the_token_mean_does_not_depend_on_how_the_batch_is_cut(losses: list[float], size: int) -> None:
    whole = torch.tensor(losses, dtype=torch.float64)
    parts = [grpo.token_mean(part, torch.ones_like(part), len(losses)) for part in torch.split(whole, size)]
    assert float(sum(parts)) == pytest.approx(float(whole.mean()), abs=1e-9)


@given(st.floats(-15, 15), st.floats(-15, 15))
def test_the_kl_penalty_is_bounded_and_vanishes_where_the_policies_agree(one: float, other: float) -> None:
    first, second = torch.tensor([one], dtype=torch.float64), torch.tensor([other], dtype=torch.float64)
    assert 0 <= float(grpo.kl_penalty(first, second)) <= grpo.KL_LIMIT
    assert float(grpo.kl_penalty(first, first)) == 0.0


def test_the_kl_penalty_is_the_k3_estimate() -> None:
    d = 0.3
    assert float(grpo.kl_penalty(torch.tensor([d]), torch.zeros(1))) == pytest.approx(math.exp(-d) - 1 + d, abs=1e-6)


def test_whitening_is_over_tokens_not_samples() -> None:
    advantages = grpo.whitened(torch.tensor([1.0, -1.0]), torch.tensor([3.0, 1.0]))
    mean = (advantages * torch.tensor([3.0, 1.0])).sum() / 4
    assert float(mean) == pytest.approx(0.0, abs=1e-6)
