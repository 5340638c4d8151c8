"""Sequences with common beginnings as one packed row in which each shared part stands, and is computed, once.

A node is a run of tokens; it attends to its ancestors and, causally, to itself. The result for every token is that of
its sequence computed alone, and so is the gradient: a shared token gets the sum of what flows back from its branches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows

SHORTEST_SHARED = 8
"""Branches that part after fewer common tokens than this stay apart: a node costs one attention call a layer."""


@dataclass(frozen=True)
class Node:
    start: int
    """Position in the packed row."""
    length: int
    ancestors: tuple[slice, ...]
    """Ranges of the packed row, root first."""
    depth: int
    """Tokens before this node in its sequences."""


@dataclass(frozen=True)
class Packed:
    tokens: tuple[int, ...]
    nodes: tuple[Node, ...]
    places: tuple[tuple[int, ...], ...]
    """places[i][t] is the packed position of token t of sequence i."""

    def positions(self) -> torch.Tensor:
        """Position ids [1, tokens]: each token's place in its own sequence."""
        return torch.cat([torch.arange(node.depth, node.depth + node.length) for node in self.nodes])[None]


def pack(sequences: Sequence[Sequence[int]], shortest_shared: int = SHORTEST_SHARED) -> Packed:
    """Needs at least one sequence, none empty."""
    tokens: list[int] = []
    nodes: list[Node] = []
    places: list[list[int]] = [[] for _ in sequences]

    def grow(members: list[int], depth: int, ancestors: tuple[slice, ...]) -> None:
        length = _common_length([sequences[index] for index in members], depth)
        if length:
            start = len(tokens)
            tokens.extend(sequences[members[0]][depth : depth + length])
            nodes.append(Node(start, length, ancestors, depth))
            ancestors = (*ancestors, slice(start, start + length))
            for index in members:
                places[index].extend(range(start, start + length))
        for branch in _branches(sequences, members, depth + length, shortest_shared):
            grow(branch, depth + length, ancestors)

    grow(list(range(len(sequences))), 0, ())
    return Packed(tuple(tokens), tuple(nodes), tuple(tuple(place) for place in places))


class TreeAttention:
    """Attention of a packed row, node by node (an AttentionStep of kv_slots)."""

    def __init__(self, packed: Packed) -> None:
        self._nodes = packed.nodes
        self._masks = [_mask(node) for node in packed.nodes]

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        del layer
        outputs = []
        for node, mask in zip(self._nodes, self._masks, strict=True):
            own = slice(node.start, node.start + node.length)
            seen = (*node.ancestors, own)
            outputs.append(
                F.scaled_dot_product_attention(
                    query[:, :, own],
                    torch.cat([key[:, :, part] for part in seen], dim=2),
                    torch.cat([value[:, :, part] for part in seen], dim=2),
                    attn_mask=mask,
                    scale=scale,
                    enable_gqa=True,
                )
            )
        return torch.cat(outputs, dim=2).transpose(1, 2)


def _branches(
    sequences: Sequence[Sequence[int]], members: list[int], depth: int, shortest_shared: int
) -> list[list[int]]:
    """The members that go on after `depth`, those together that share enough of what follows."""
    by_next: dict[tuple[int, ...], list[int]] = {}
    for index in members:
        if len(sequences[index]) > depth:
            by_next.setdefault(tuple(sequences[index][depth : depth + shortest_shared]), []).append(index)
    whole = [branch for start, branch in by_next.items() if len(start) == shortest_shared]
    short = [[index] for start, branch in by_next.items() if len(start) < shortest_shared for index in branch]
    return whole + short


def _common_length(sequences: Sequence[Sequence[int]], depth: int) -> int:
    low, high = min(sequences, key=tuple), max(sequences, key=tuple)
    end = min(len(low), len(high))
    return next((at for at in range(depth, end) if low[at] != high[at]), end) - depth


def _mask(node: Node) -> torch.Tensor:
    before = sum(part.stop - part.start for part in node.ancestors)
    return torch.ones(node.length, before + node.length, dtype=torch.bool).tril(diagonal=before)
