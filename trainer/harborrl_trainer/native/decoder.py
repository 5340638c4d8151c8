"""A causal language model over key-value slots: prefill of packed pieces, one decode step for many slots."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from harborrl_trainer.native.kv_slots import ATTENTION, AttentionStep, DecodeStep, KVSlots, Piece, PrefillStep, Shape
from harborrl_trainer.native.precision import ComputeType, round_linears

PREFILL_TOKENS = 512
"""Tokens of one prefill pass: bounds its memory and how long it holds up the rows that are decoding."""


class Decoder:
    def __init__(self, model: Any, *, slots: int, capacity: int, cache_type: torch.dtype) -> None:
        """`model` is a causal language model of transformers, loaded with `attn_implementation=ATTENTION`."""
        config = model.config
        heads: int = config.num_attention_heads
        self._model = model.eval()
        self._body: Any = model.get_decoder()
        self._head: Any = model.get_output_embeddings()
        self.kv = KVSlots(
            Shape(
                layers=config.num_hidden_layers,
                kv_heads=getattr(config, "num_key_value_heads", None) or heads,
                head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
                slots=slots,
                capacity=capacity,
                dtype=cache_type,
            )
        )

    def prefill(self, pieces: Sequence[Piece]) -> torch.Tensor:
        """Fills the slots; logits [pieces, vocabulary] after the last token of each piece, in their order."""
        results: dict[int, torch.Tensor] = {}
        for batch in _batches(pieces):
            hidden = self._run(
                [token for piece, _ in batch for token in piece.tokens], PrefillStep(self.kv, [p for p, _ in batch])
            )
            at = 0
            for piece, final_of in batch:
                at += len(piece.tokens)
                if final_of is not None:
                    results[final_of] = hidden[at - 1]
        return self._logits(torch.stack([results[index] for index in range(len(pieces))]))

    def decode(self, slots: Sequence[int], tokens: Sequence[int], lengths: Sequence[int]) -> torch.Tensor:
        """Logits [slots, vocabulary] after one more token each."""
        return self._logits(self._run(tokens, DecodeStep(self.kv, slots, lengths)))

    @torch.inference_mode()
    def load(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Every parameter by name, any float type. The caller forgets what the slots hold."""
        own = dict(self._model.named_parameters())
        missing = own.keys() - weights.keys()
        if missing:
            raise ValueError(f"weights lack {len(missing)} parameters, for example {min(missing)}")
        for name, parameter in own.items():
            parameter.copy_(weights[name])

    @torch.inference_mode()
    def _run(self, tokens: Sequence[int], step: PrefillStep | DecodeStep) -> torch.Tensor:
        attention_step: AttentionStep = step
        output = self._body(
            input_ids=torch.tensor([list(tokens)]),
            position_ids=step.positions(),
            use_cache=False,
            attention_step=attention_step,
        )
        hidden: torch.Tensor = output.last_hidden_state[0]
        return hidden

    @torch.inference_mode()
    def _logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._head(hidden)
        return logits


def load_decoder(path: str, *, slots: int, capacity: int, compute: ComputeType) -> Decoder:
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation=ATTENTION)
    if compute == "bfloat16":
        round_linears(model)
    return Decoder(model, slots=slots, capacity=capacity, cache_type=getattr(torch, compute))


def _batches(pieces: Sequence[Piece]) -> list[list[tuple[Piece, int | None]]]:
    """Passes of at most PREFILL_TOKENS; long pieces are cut. Beside each part: which piece it ends, if any."""
    batches: list[list[tuple[Piece, int | None]]] = [[]]
    room = PREFILL_TOKENS
    for index, piece in enumerate(pieces):
        done = 0
        while done < len(piece.tokens):
            if room == 0:
                batches.append([])
                room = PREFILL_TOKENS
            part = piece.tokens[done : done + room]
            batches[-1].append(
                (Piece(piece.slot, piece.start + done, part), index if done + len(part) == len(piece.tokens) else None)
            )
            done += len(part)
            room -= len(part)
    return batches
