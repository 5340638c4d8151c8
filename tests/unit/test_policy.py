import pytest
import torch

from harborrl_trainer.native.policy import Interrupted, Policy, PolicyConfig, TrainSample
from support import tiny_model

PROMPT = tuple(range(40, 60))


def test_the_loss_does_not_depend_on_the_micro_batches() -> None:
    reports = [_policy(micro_batch_tokens=size).train(_samples()) for size in (1, 40, 10_000)]
    assert reports[0].loss == pytest.approx(reports[1].loss, abs=1e-6)
    assert reports[0].grad_norm == pytest.approx(reports[2].grad_norm, rel=1e-4)


def test_the_first_step_is_on_policy_so_that_nothing_is_clipped() -> None:
    report = _policy().train(_samples())
    assert report.clipped == 0.0
    assert report.grad_norm > 0
    assert report.optimizer_steps == 1


def test_a_second_step_on_the_same_rollout_is_off_policy_and_uses_the_log_probs_from_before_the_first() -> None:
    policy = _policy(global_batch_size=2)
    before = policy.score(_samples())
    report = policy.train(_samples())
    assert report.optimizer_steps == 2
    for recorded, scored in zip(report.log_probs, before, strict=True):
        assert recorded == pytest.approx(scored, abs=1e-5)


def test_without_any_advantage_the_weights_stay_even_when_momentum_would_move_them() -> None:
    policy = _policy()
    policy.train(_samples())
    before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
    report = policy.train(_samples(advantages=(0.0, 0.0, 0.0, 0.0)))
    assert (report.skipped_steps, report.optimizer_steps, report.loss) == (1, 0, 0.0)
    assert all(torch.equal(weight, before[name]) for name, weight in policy.model.state_dict().items())
    assert report.log_probs[0][0] < 0  # still scored


def test_a_sample_whose_every_token_is_masked_changes_nothing() -> None:
    masked = TrainSample(0, PROMPT, (70, 71), (0, 0), (0.0, 0.0), 5.0)
    one, other = _policy(), _policy()
    report = one.train([*_samples(), masked])
    assert report.loss == pytest.approx(other.train(_samples()).loss, abs=1e-6)
    assert report.log_probs[-1] == [0.0, 0.0]


def test_the_log_prob_gap_is_against_what_the_engine_recorded() -> None:
    policy = _policy()
    scored = policy.score(_samples())
    shifted = [
        TrainSample(s.group, s.prompt_ids, s.response_ids, s.loss_mask, tuple(v - 0.25 for v in values), s.advantage)
        for s, values in zip(_samples(), scored, strict=True)
    ]
    assert policy.train(shifted).logprob_gap == pytest.approx(0.25, abs=1e-4)


def test_rewarded_tokens_become_likelier_and_punished_ones_less_likely() -> None:
    policy = _policy()
    before = policy.score(_samples())
    policy.train(_samples())
    after = policy.score(_samples())
    gains = [sum(new) - sum(old) for old, new in zip(before, after, strict=True)]
    assert gains[0] > 0 > gains[1]


def test_an_interrupted_step_leaves_the_weights_as_they_were() -> None:
    policy = _policy(micro_batch_tokens=1)
    before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
    policy.interrupted.set()
    with pytest.raises(Interrupted):
        policy.train(_samples())
    assert all(torch.equal(weight, before[name]) for name, weight in policy.model.state_dict().items())
    assert all(parameter.grad is None for parameter in policy.model.parameters())


def test_the_kl_penalty_pulls_back_to_the_reference() -> None:
    policy = Policy(tiny_model.model(seed=1), _config(kl_coef=1.0), reference=tiny_model.model())
    idle = _samples(advantages=(0.0, 0.0, 0.0, 0.0))
    first = policy.train(idle)
    for _ in range(3):
        last = policy.train(idle)
    assert first.kl > last.kl > 0


def test_what_is_published_is_a_copy() -> None:
    policy = _policy()
    published = policy.weights()
    before = {name: weight.clone() for name, weight in published.items()}
    policy.train(_samples())
    assert all(torch.equal(weight, before[name]) for name, weight in published.items())


@pytest.mark.parametrize(("advantage", "diverged"), [(3e38, False), (float("inf"), True)])
def test_a_step_that_is_not_finite_leaves_the_weights_as_they_were(advantage: float, diverged: bool) -> None:
    policy = _policy()
    before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
    samples = _samples(advantages=(advantage, -0.5, -0.5, -0.5))
    if diverged:
        with pytest.raises(FloatingPointError):
            policy.train(samples)
    else:
        assert policy.train(samples).skipped_steps == 1
    assert all(torch.equal(weight, before[name]) for name, weight in policy.model.state_dict().items())


def test_a_resumed_optimizer_keeps_its_moments_and_takes_the_new_rates() -> None:
    before, after = _policy(lr=1e-3), _policy(lr=1e-5)
    before.train(_samples())
    after.restore_optimizer(before.optimizer.state_dict())
    assert after.optimizer.param_groups[0]["lr"] == 1e-5
    assert after.optimizer.state_dict()["state"]


def test_linear_layers_are_published_rounded_where_products_are_bfloat16() -> None:
    policy = Policy(tiny_model.model(), _config(compute="bfloat16"))
    published = policy.weights()
    assert published["model.layers.0.mlp.up_proj.weight"].dtype == torch.bfloat16
    assert published["model.embed_tokens.weight"].dtype == torch.float32


def _config(**changes: object) -> PolicyConfig:
    values: dict[str, object] = {
        "lr": 1e-3,
        "betas": (0.9, 0.95),
        "weight_decay": 0.0,
        "clip_grad": 1.0,
        "eps_low": 0.2,
        "eps_high": 0.28,
        "temperature": 1.0,
        "global_batch_size": 8,
    }
    return PolicyConfig(**(values | changes))  # type: ignore[arg-type]  # one mapping for all fields


def _policy(**changes: object) -> Policy:
    return Policy(tiny_model.model(), _config(**changes))


def _samples(advantages: tuple[float, ...] = (1.5, -0.5, -0.5, -0.5)) -> list[TrainSample]:
    return [
        TrainSample(0, PROMPT, (70 + at, 80 + at, 90 + at), (1, 1, 1), (-5.0, -5.0, -5.0), advantage)
        for at, advantage in enumerate(advantages)
    ]
