"""A random Llama with a byte-level tokenizer and SmolLM2's chat template: everything of a model but the knowledge."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

END, START = "<|im_end|>", "<|im_start|>"
DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\n" + DEFAULT_SYSTEM + "<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
END_ID, START_ID = 0, 1
STOPS = frozenset({END_ID, *range(20, 30)})
"""Tokens that end an answer: more than one, because a random model hardly ever samples the one."""


def tokenizer() -> Any:
    """One token a byte, after the two special ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {END: END_ID, START: START_ID} | {letter: at for at, letter in enumerate(alphabet, start=2)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(END, special=True), AddedToken(START, special=True)])
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=inner, eos_token=END, bos_token=START, pad_token=END, chat_template=CHAT_TEMPLATE)


def model(attention: str = "harborrl_slots", seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=258,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.3,
        tie_word_embeddings=True,
        bos_token_id=START_ID,
        eos_token_id=END_ID,
        pad_token_id=END_ID,
    )
    config._attn_implementation = attention
    built: Any = LlamaForCausalLM(config)
    return built.eval()


def save(path: Path) -> Path:
    model("sdpa").save_pretrained(path)
    tokenizer().save_pretrained(path)
    generation: Any = GenerationConfig
    generation(eos_token_id=sorted(STOPS)).save_pretrained(path)
    return path
