"""`trainer.config`: the fields of HarborFrameworkConfig, with its documented defaults.

The CRD carries no defaults for them: a preset ranks below what is set explicitly, and a default that the API server
fills in could not be told from one that the user wrote.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from harborrl_operator.models.base import Count, FreeForm, Model

Rate = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Word = Annotated[str, Field(min_length=1, max_length=1024)]


def _describe_defaults(schema: dict[str, Any]) -> None:
    for field in schema["properties"].values():
        default = field.pop("default", None)
        if default not in (None, {}):
            field["description"] += f" Documented default: {str(default).lower() if default is True else default}."


class FrameworkConfig(Model):
    """Training hyper-parameters; unset fields take the preset's value, else the documented default."""

    model_config = ConfigDict(json_schema_extra=_describe_defaults)

    colocate: bool = True
    """Rollout engines share the trainer's GPUs. `mode: async` implies false. Default true: one node is enough."""
    actor_nodes: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """Nodes for training. Unset: all when colocated, else all but one."""
    rollout_num_gpus: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] | None = None
    """GPUs for rollout when not colocated. Unset: what the training nodes leave."""
    app_tags: FreeForm = Field(default_factory=dict)
    """Free labels of the run, kept in the job document."""
    advantage_estimator: Word = "grpo"
    """How rewards become advantages. Default grpo: centred within a prompt's group of samples."""
    eps_clip: Rate = 0.2
    """Half-width of the importance ratio's clip range; larger lets one step move the policy further."""
    clip_grad: Rate = 1.0
    """Largest gradient norm; above it gradients are scaled down."""
    kl_coef: Rate = 0.0
    """Weight of the KL penalty against the reference model: Miles takes it off the reward, native adds it (k3 estimate)
    to the loss. Default 0: no reference model is needed."""
    normalize_advantages: bool = False
    """Normalise advantages over the whole batch as well."""
    seed: int = 1234
    """Seed of sampling order and initialisation."""
    lr: Positive = 1e-6
    """Learning rate. Default fits full tuning of a large model; small models and LoRA need 10 to 100 times that."""
    lr_decay_style: Word = "constant"
    """Learning-rate schedule."""
    weight_decay: Rate = 0.0
    """AdamW weight decay."""
    adam_beta1: Decay = 0.9
    """AdamW first-moment decay."""
    adam_beta2: Decay = 0.95
    """AdamW second-moment decay."""
    micro_batch_size: Count = 1
    """Samples in one forward and backward pass on a rank."""
    n_samples_per_prompt: Count = 8
    """Trials of each prompt, the GRPO group. Times `rolloutBatchSize` gives the trials in flight."""
    bf16: bool = True
    """Train in bfloat16. Native keeps float32 weights and multiplies in bfloat16 where the processor can."""
    attention_softmax_in_fp32: bool = True
    """Compute the attention softmax in float32."""
    attention_dropout: Share = 0.0
    """Dropout of attention weights; RL wants none, or log-probs of rollout and training differ."""
    hidden_dropout: Share = 0.0
    """Dropout of hidden states; as above."""
    rollout_temperature: Positive = 1.0
    """Sampling temperature of rollouts. Lower gives less spread within a group."""
    no_save_optim: bool = True
    """Leave optimizer state out of checkpoints. Default true: small checkpoints, but a resume restarts the moments."""
    megatron_to_hf_mode: Word = "bridge"
    """How Megatron weights become Hugging Face weights."""
    agent_model_name: Word = "model"
    """Model name that the agent puts into its requests."""
    input_key: Word = "prompt"
    """Column of the prompt in the JSONL data."""
    label_key: Word = "metadata"
    """Column of the metadata, which holds `instance_id`."""
    apply_chat_template: bool = True
    """Render prompts through the model's chat template."""
    enable_thinking: bool = True
    """Passed to the chat template."""
    rollout_shuffle: bool = True
    """Shuffle prompts each epoch."""
    recompute_granularity: Word = "selective"
    """Activation recomputation of Megatron."""
    max_position_embeddings: Count = 32768
    """Longest position that the trainer prepares for, in tokens."""
    untie_embeddings_and_output_weights: bool = True
    """Separate input and output embeddings. Unset: follows the model's own configuration."""
    no_masked_softmax_fusion: bool = True
    """Megatron's flag of the same name."""
    num_rollout: Count = 200
    """Rollouts (steps) of the whole run."""
    rollout_batch_size: Count = 64
    """Prompts a rollout."""
    rollout_max_response_len: Count = 1024
    """Longest reply of one turn, in tokens."""
    sglang_mem_fraction_static: Share = 0.7
    """Share of GPU memory that SGLang takes for weights and cache."""
    train_iters: Count = 50
    """Megatron's own iteration count; rollouts decide in practice."""
    global_batch_size: Count = 512
    """Samples an optimizer step; must divide `rolloutBatchSize x nSamplesPerPrompt`."""
    eval_interval: Annotated[int, Field(ge=0, le=1_000_000)] = 10
    """Rollouts between evaluations; left out when `eval` is not set, and `eval.interval` ranks above it."""
    save_interval: Count = 10
    """Rollouts between checkpoints: what a failure can cost."""
    miles_src_commit: Word = "9a003644739f4e6dd509e2e8337e8ae7e571941c"
    """Miles commit in the image; decides which flags are known."""
