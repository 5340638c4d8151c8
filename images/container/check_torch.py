"""Proof, inside the trainer image, that its torch trains on the CPU: five optimizer steps of a small Llama."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
tokens = torch.arange(48).reshape(2, 24) % 64
losses = []
for _ in range(5):
    loss = model(input_ids=tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
generated = model.generate(tokens[:, :4], max_new_tokens=4, do_sample=True, pad_token_id=0)
if losses[-1] >= losses[0] or generated.shape != (2, 8) or torch.cuda.is_available():
    raise SystemExit(f"torch does not train on this CPU: losses {losses}, generated {tuple(generated.shape)}")
print(
    f"torch {torch.__version__} on the CPU, {torch.get_num_threads()} threads, loss {losses[0]:.3f} -> {losses[-1]:.3f}"
)
