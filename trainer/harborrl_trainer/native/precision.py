"""One arithmetic for engine and trainer: matrix products in bfloat16 where the processor has them, all else in float32.

The trainer keeps float32 weights and rounds them on the way into each product, as autocast does; the engine holds the
rounded ones. Both sides then compute the same function, and what is left between their log-probs is summation order.
"""

from collections.abc import Mapping
from typing import Any, Literal, override

import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows

ComputeType = Literal["bfloat16", "float32"]


def best_compute_type() -> ComputeType:
    """Where the instructions exist bfloat16 products are three to four times as fast as float32, elsewhere slower."""
    has_bf16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()  # noqa: SLF001 - no public question
    return "bfloat16" if has_bf16 else "float32"


class RoundedLinear(torch.nn.Module):
    """A linear layer that holds its weight rounded to bfloat16 and rounds its input, as autocast would."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(linear.weight.detach().to(torch.bfloat16), requires_grad=False)
        bias: torch.Tensor | None = linear.bias
        self.bias = None if bias is None else torch.nn.Parameter(bias.detach().to(torch.bfloat16), requires_grad=False)

    @override
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden.to(torch.bfloat16), self.weight, self.bias)


def round_linears(model: Any) -> None:
    """Replaces the linear layers. The output head stays float32: rounded logits are too coarse for log-probs."""
    head = model.get_output_embeddings()
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, torch.nn.Linear) and child is not head:
                setattr(module, name, RoundedLinear(child))


def rounded(weights: Mapping[str, torch.Tensor], linear_names: frozenset[str]) -> dict[str, torch.Tensor]:
    """Weights for the engine: those of rounded layers as bfloat16, which halves what travels."""
    return {
        name: tensor.to(torch.bfloat16) if name in linear_names else tensor.clone() for name, tensor in weights.items()
    }


def rounded_names(model: Any) -> frozenset[str]:
    """Parameter names that `round_linears` would round in `model`."""
    head = model.get_output_embeddings()
    linears = [
        (path, module)
        for path, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    ]
    return frozenset(f"{path}.{name}" for path, module in linears for name, _ in module.named_parameters())
