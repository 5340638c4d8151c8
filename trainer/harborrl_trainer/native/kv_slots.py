"""Key-value cache in slots: one slot a running request, one shared prefix for all of them.

A group's trials, and most prompts of a run, begin with the same tokens. Their keys and values are computed once and
stay in place: a decode step attends to the shared prefix with all rows at once, to each slot's own tail row by row, and
joins the two softmax parts by their log-sum-exp.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

ATTENTION = "harborrl_slots"


class AttentionStep(Protocol):
    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Query [1, heads, tokens, d], key and value [1, kv heads, tokens, d] -> [1, tokens, heads, d]."""
        ...


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _mask: Any,
    *,
    scaling: float,
    attention_step: AttentionStep,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    layer: int = module.layer_idx  # type: ignore[assignment]  # torch types attributes as Tensor | Module
    # Rotary embeddings are float32, and so are the query and key that leave them; the cache's type is the value's.
    kind = value.dtype
    return attention_step.attend(layer, query.to(kind), key.to(kind), value, scaling), None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attention)


@dataclass(frozen=True)
class Shape:
    layers: int
    kv_heads: int
    head_dim: int
    slots: int
    capacity: int
    """Tokens a slot can hold. Memory is touched only as far as a slot is filled."""
    dtype: torch.dtype


class KVSlots:
    def __init__(self, shape: Shape) -> None:
        size = (shape.slots, shape.kv_heads, shape.capacity, shape.head_dim)
        self.keys = [_untouched_zeros(size, shape.dtype) for _ in range(shape.layers)]
        self.values = [_untouched_zeros(size, shape.dtype) for _ in range(shape.layers)]
        self.prefix_keys: list[torch.Tensor] = []
        self.prefix_values: list[torch.Tensor] = []
        self.prefix: tuple[int, ...] = ()
        self.after_prefix = [False] * shape.slots
        """Whether a slot's content follows the shared prefix."""

    def offset(self, slot: int) -> int:
        """Position in the sequence of the slot's first token."""
        return len(self.prefix) if self.after_prefix[slot] else 0

    def copy(self, source: int, target: int, count: int) -> None:
        for store in (*self.keys, *self.values):
            store[target, :, :count] = store[source, :, :count]
        self.after_prefix[target] = self.after_prefix[source]

    def keep_as_prefix(self, slot: int, tokens: Sequence[int]) -> None:
        """Makes the first `len(tokens)` positions of a slot the shared prefix; every slot is invalid afterwards."""
        count = len(tokens)
        self.prefix_keys = [store[slot : slot + 1, :, :count].clone() for store in self.keys]
        self.prefix_values = [store[slot : slot + 1, :, :count].clone() for store in self.values]
        self.prefix = tuple(tokens)
        self.after_prefix = [False] * len(self.after_prefix)

    def drop_prefix(self) -> None:
        self.prefix, self.prefix_keys, self.prefix_values = (), [], []
        self.after_prefix = [False] * len(self.after_prefix)


@dataclass(frozen=True)
class Piece:
    """Consecutive tokens of one slot in a prefill: `start` is the first one's position inside the slot."""

    slot: int
    start: int
    tokens: tuple[int, ...]


class PrefillStep:
    """Pieces of several slots packed behind one another; the linear layers see one long row without padding."""

    def __init__(self, kv: KVSlots, pieces: Sequence[Piece]) -> None:
        self._kv = kv
        self._pieces = pieces
        self._masks = [self._mask(piece) for piece in pieces]

    def positions(self) -> torch.Tensor:
        ranges = [torch.arange(len(piece.tokens)) + self._kv.offset(piece.slot) + piece.start for piece in self._pieces]
        return torch.cat(ranges)[None]

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        outputs, at = [], 0
        for piece, mask in zip(self._pieces, self._masks, strict=True):
            count, end = len(piece.tokens), piece.start + len(piece.tokens)
            here = slice(at, at + count)
            at += count
            keys, values = self._kv.keys[layer], self._kv.values[layer]
            keys[piece.slot, :, piece.start : end] = key[0, :, here]
            values[piece.slot, :, piece.start : end] = value[0, :, here]
            seen_keys, seen_values = (
                keys[piece.slot : piece.slot + 1, :, :end],
                values[piece.slot : piece.slot + 1, :, :end],
            )
            if self._kv.after_prefix[piece.slot]:
                seen_keys = torch.cat([self._kv.prefix_keys[layer], seen_keys], dim=2)
                seen_values = torch.cat([self._kv.prefix_values[layer], seen_values], dim=2)
            outputs.append(
                F.scaled_dot_product_attention(
                    query[:, :, here], seen_keys, seen_values, attn_mask=mask, scale=scale, enable_gqa=True
                )
            )
        return torch.cat(outputs, dim=2).transpose(1, 2)

    def _mask(self, piece: Piece) -> torch.Tensor:
        count, before = len(piece.tokens), self._kv.offset(piece.slot) + piece.start
        return torch.ones(count, before + count, dtype=torch.bool).tril(diagonal=before)


class DecodeStep:
    """One new token for each of some slots."""

    def __init__(self, kv: KVSlots, slots: Sequence[int], lengths: Sequence[int]) -> None:
        """`lengths` are the tokens that each slot already holds; the new one goes to that position."""
        self._kv = kv
        self._slots = torch.tensor(slots)
        self._lengths = torch.tensor(lengths)
        self._longest = max(lengths) + 1
        # A view of a dense range is free; picking scattered rows copies them, which pays only when few are running.
        dense = len(slots) * 2 >= max(slots) + 1
        self._rows: slice | torch.Tensor = slice(0, max(slots) + 1) if dense else self._slots
        self._place = self._slots if dense else torch.arange(len(slots))
        self._row_count = max(slots) + 1 if dense else len(slots)
        limits = torch.ones(self._row_count, dtype=torch.long)
        limits[self._place] = self._lengths + 1
        hidden = torch.arange(self._longest)[None] >= limits[:, None]
        self._mask = torch.zeros(hidden.shape, dtype=kv.keys[0].dtype).masked_fill_(hidden, -torch.inf)[:, None, None]
        # Everything that is the same in each layer is made here: a layer of a small model takes a millisecond.
        self._whole = list(slots) == list(range(self._row_count))
        self._follows = torch.tensor([kv.after_prefix[slot] for slot in slots])[:, None, None]
        self._any_follows, self._all_follow = bool(self._follows.any()), bool(self._follows.all())

    def positions(self) -> torch.Tensor:
        offsets = torch.tensor([self._kv.offset(slot) for slot in self._slots.tolist()])
        return (self._lengths + offsets)[None]

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        keys, values = self._kv.keys[layer], self._kv.values[layer]
        keys[self._slots, :, self._lengths] = key[0].transpose(0, 1)
        values[self._slots, :, self._lengths] = value[0].transpose(0, 1)
        kv_heads, dim = key.shape[1], key.shape[3]
        # The query heads that share a key head become the rows of one small matrix: no key is repeated.
        grouped = query[0].view(kv_heads, -1, *query.shape[2:]).permute(2, 0, 1, 3)
        own, own_norm = self._own(grouped, keys, values, scale)
        if self._any_follows:
            shared, shared_norm = self._shared(layer, grouped, scale)
            weight = torch.sigmoid(own_norm - shared_norm).to(own.dtype)
            if not self._all_follow:
                weight = torch.where(self._follows, weight, torch.ones_like(weight))
            own = torch.lerp(shared, own, weight[..., None])
        return own.reshape(1, own.shape[0], -1, dim)

    def _own(
        self, grouped: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows = grouped
        if not self._whole:
            rows = grouped.new_zeros(self._row_count, *grouped.shape[1:])
            rows[self._place] = grouped
        output, norm = _flash(
            rows,
            keys[self._rows, :, : self._longest],
            values[self._rows, :, : self._longest],
            mask=self._mask,
            scale=scale,
        )
        return (output, norm) if self._whole else (output[self._place], norm[self._place])

    def _shared(self, layer: int, grouped: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        batch, kv_heads, width, dim = grouped.shape
        together = grouped.permute(1, 0, 2, 3).reshape(1, kv_heads, batch * width, dim)
        prefix = self._kv.prefix_keys[layer], self._kv.prefix_values[layer]
        output, norm = _flash(together, *prefix, mask=None, scale=scale)
        output = output[0].view(kv_heads, batch, width, dim).permute(1, 0, 2, 3)
        return output, norm[0].view(kv_heads, batch, width).permute(1, 0, 2)


def _untouched_zeros(size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros that take no memory until written: NumPy asks the kernel for zero pages, torch would write them all.

    Zeros because a masked position still has its value multiplied by 0, and uninitialised memory may hold NaN.
    """
    count = math.prod(size) * dtype.itemsize
    return torch.from_numpy(np.zeros(count, dtype=np.uint8)).view(dtype).view(size)


def _flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, mask: torch.Tensor | None, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention and its log-sum-exp [batch, heads, queries]; the public function keeps the latter to itself."""
    output, norm = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(  # noqa: SLF001 - see above
        query, key, value, attn_mask=mask, scale=scale
    )
    return output, norm
