"""The mathematics of GRPO: small functions on tensors, no model, no device, no state."""

import torch

STD_EPSILON = 1e-6
LOG_RATIO_LIMIT = 20.0
KL_LIMIT = 10.0


def group_advantages(rewards: torch.Tensor) -> torch.Tensor:
    """(r - mean) / (std + 1e-6) with the unbiased deviation, for the rewards [G] of one group.

    Exactly zero where all rewards are equal, and for a group of one.
    """
    if rewards.numel() < 2 or bool((rewards == rewards[0]).all()):
        return torch.zeros_like(rewards)
    centred = rewards - rewards.mean()
    return centred / (rewards.std(unbiased=True) + STD_EPSILON)


def whitened(advantages: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """`normalizeAdvantages`: zero mean and unit variance over all trained tokens; `tokens` [N] counts each sample's."""
    total = tokens.sum().clamp(min=1)
    mean = (advantages * tokens).sum() / total
    variance = ((advantages - mean).square() * tokens).sum() / total
    return (advantages - mean) * torch.rsqrt(variance + 1e-8)


def policy_loss(
    log_probs: torch.Tensor, old_log_probs: torch.Tensor, advantages: torch.Tensor, *, eps_low: float, eps_high: float
) -> torch.Tensor:
    """Clipped surrogate of each token, to be minimised: -min(ratio A, clip(ratio, 1 - low, 1 + high) A)."""
    ratio = torch.exp((log_probs - old_log_probs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))
    clipped = ratio.clamp(1 - eps_low, 1 + eps_high)
    return -torch.minimum(ratio * advantages, clipped * advantages)


def truncated_importance(old_log_probs: torch.Tensor, rollout_log_probs: torch.Tensor, cap: float) -> torch.Tensor:
    """Weight of each token for having been sampled by the engine and not by the trainer's own policy, at most `cap`."""
    difference = (old_log_probs - rollout_log_probs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return torch.exp(difference).clamp(max=cap).detach()


def kl_penalty(log_probs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """The k3 estimate of KL(policy, reference) from each sampled token, at least 0 and cut at `KL_LIMIT`.

    Unbiased below that limit alone: one token that the policy has all but given up must not outweigh its batch.
    """
    backwards = (reference - log_probs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    # expm1: exp(x) - 1 loses what is left of a small x.
    return (torch.expm1(backwards) - backwards).clamp(0, KL_LIMIT)


def token_mean(token_losses: torch.Tensor, mask: torch.Tensor, tokens_in_batch: int) -> torch.Tensor:
    """A micro-batch's share of the mean over all trained tokens of the global batch; the shares add up to that mean."""
    return (token_losses * mask).sum() / max(tokens_in_batch, 1)
