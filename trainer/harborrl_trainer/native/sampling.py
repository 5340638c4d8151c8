"""Drawing the next token, and the log-probability of having drawn it."""

import random
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class SamplingParams:
    temperature: float = 1.0
    """> 0. The log-probs recorded are those at this temperature, and training re-scores at the same one."""
    top_p: float = 1.0
    """Nucleus; the recorded log-probs are renormalised over it."""
    max_tokens: int = 256
    seed: int | None = None
    """With a seed a request draws the same uniform numbers wherever it stands in a batch."""


def uniforms(seed: int | None, position: int) -> random.Random:
    """The source of one request's random numbers; `position` keeps the turns of a session apart."""
    return random.Random() if seed is None else random.Random(f"{seed}:{position}")  # noqa: S311 - sampling, not secrets


def draw(logits: torch.Tensor, params: list[SamplingParams], uniform: list[float]) -> tuple[list[int], list[float]]:
    """Next token ids and their log-probs for `logits` [batch, vocabulary], by inverting each row's distribution."""
    temperature = torch.tensor([[one.temperature] for one in params])
    log_probs = torch.log_softmax(logits.float() / temperature, dim=-1)
    for row, one in enumerate(params):
        if one.top_p < 1:
            log_probs[row] = _nucleus(log_probs[row], one.top_p)
    cumulative = log_probs.exp().cumsum(dim=-1)
    # Scaled by the row's own total: rounding must not let a draw fall behind the last token.
    target = torch.tensor(uniform)[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, target, right=True).clamp_(max=logits.shape[-1] - 1)
    return tokens[:, 0].tolist(), log_probs.gather(-1, tokens)[:, 0].tolist()


def _nucleus(log_probs: torch.Tensor, top_p: float) -> torch.Tensor:
    """The smallest set of tokens whose probability reaches `top_p`, renormalised; all others get -inf."""
    ordered, order = log_probs.sort(descending=True)
    probability = ordered.exp()
    beyond = probability.cumsum(dim=-1) - probability >= top_p
    return torch.log_softmax(log_probs.masked_fill(torch.zeros_like(beyond).scatter(0, order, beyond), -torch.inf), -1)
