"""`trainer.config`: the fields of HarborFrameworkConfig, with its documented defaults.

Generated from the trainer's class by `python -m harborrl_trainer.config.generate FILE`; do not edit.
The CRD carries no defaults for them: a preset ranks below what is set explicitly, and a default that the API server
fills in could not be told from one that the user wrote.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from harborrl_operator.models.base import TEXT, Count, FreeForm, Model

Rate = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Word = Annotated[str, Field(min_length=1, max_length=1024, json_schema_extra=TEXT)]


def _describe_defaults(schema: dict[str, Any]) -> None:
    for field in schema["properties"].values():
        default = field.pop("default", None)
        if default not in (None, {}):
            field["description"] += f" Documented default: {str(default).lower() if default is True else default}."


class FrameworkConfig(Model):
    """Training hyper-parameters; unset fields take the preset's value, else the documented default."""

    model_config = ConfigDict(json_schema_extra=_describe_defaults)

    colocate: bool = True
    """Rollout engines share the trainer's GPUs and take turns. Default true: one node is enough. `mode: async` implies
    false, which needs a node of its own for rollout."""
    actor_nodes: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """Nodes for training. Unset: all when colocated, else all but one, so that rollout keeps a node."""
    rollout_num_gpus: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] | None = None
    """GPUs for rollout when not colocated. Unset, 0 or less: what the training nodes leave."""
    app_tags: FreeForm = Field(default_factory=dict)
    """Free labels of the run, kept in the job document. Default none; nothing is decided by them."""
    advantage_estimator: Word = "grpo"
    """How rewards become advantages. Default grpo: centred within a prompt's group of samples, so no critic is needed.
    """
    eps_clip: Rate = 0.2
    """Half-width of the importance ratio's clip range. Default 0.2, PPO's; larger lets one step move the policy
    further."""
    clip_grad: Rate = 1.0
    """Largest gradient norm. Default 1: a bad batch cannot throw the weights far; above it gradients are scaled down.
    """
    kl_coef: Rate = 0.0
    """Weight of the KL penalty against the reference model: Miles takes it off the reward, native adds it (k3 estimate)
    to the loss. Default 0: no reference model is needed. Excludes Miles' `--kl-loss-coef`."""
    normalize_advantages: bool = False
    """Normalise advantages over the whole batch as well. Default false: the group has done so; `reinforce_plus_plus`
    needs true."""
    seed: int = 1234
    """Seed of sampling order and initialisation. Default 1234, Megatron's; the same seed repeats the order of prompts.
    """
    lr: Positive = 1e-6
    """Learning rate. Default fits full tuning of a large model; small models and LoRA need 10 to 100 times that."""
    lr_decay_style: Word = "constant"
    """Learning-rate schedule. Default constant: a run that is extended needs no new schedule."""
    weight_decay: Rate = 0.0
    """AdamW weight decay. Default 0: RL moves weights little, and decay would pull them off the model."""
    adam_beta1: Decay = 0.9
    """AdamW first-moment decay. Default 0.9, the usual; higher averages gradients over more steps."""
    adam_beta2: Decay = 0.95
    """AdamW second-moment decay. Default 0.95: adapts within tens of steps; the documented launchers use 0.98."""
    micro_batch_size: Count = 1
    """Samples in one forward and backward pass on a rank. Default 1: trajectories are long, memory is what is short."""
    n_samples_per_prompt: Count = 8
    """Trials of each prompt, the GRPO group. Default 8; 1 makes every advantage zero. Times `rolloutBatchSize` gives
    the trials in flight."""
    bf16: bool = True
    """Train in bfloat16. Default true: half the memory of float32 and no loss scaling. Native keeps float32 weights and
    multiplies in bfloat16 where the processor can."""
    attention_softmax_in_fp32: bool = True
    """Compute the attention softmax in float32. Default true: log-probabilities of training and rollout stay close."""
    attention_dropout: Share = 0.0
    """Dropout of attention weights, a share. Default 0: any makes log-probabilities of rollout and training differ."""
    hidden_dropout: Share = 0.0
    """Dropout of hidden states, a share. Default 0, for the same reason."""
    rollout_temperature: Positive = 1.0
    """Sampling temperature of rollouts. Default 1: samples come from the policy that is trained. Lower gives less
    spread within a group; the documented launchers use 0.8."""
    no_save_optim: bool = True
    """Leave optimizer state out of checkpoints. Default true: a third of the size or less, but a resume restarts Adam's
    moments, which the condition Resumed then says."""
    megatron_to_hf_mode: Word = "bridge"
    """How weights go between Megatron and Hugging Face form. Default bridge: loads the model's own files; `raw` needs a
    converted checkpoint in `model.refLoad`."""
    agent_model_name: Word = "model"
    """Model name that the agent puts into its requests. Default `model`: the session server serves one and asks for no
    other."""
    input_key: Word = "prompt"
    """Column of the prompt in the JSONL data. Default prompt, as the data preparation writes it."""
    label_key: Word = "metadata"
    """Column of the label. Default metadata, which holds `instance_id`; the reward comes from the verifier."""
    apply_chat_template: bool = True
    """Render prompts through the model's chat template. Default true. Agents build their own messages, so it shapes
    only what the data loader keeps."""
    enable_thinking: bool = True
    """Passed to the chat template. Default true, as models are published; native reads it, Miles' session server
    renders by its own template."""
    rollout_shuffle: bool = True
    """Shuffle prompts each epoch. Default true: neighbours in a data set are often alike."""
    recompute_granularity: Word = "selective"
    """Activation recomputation of Megatron. Default selective: attention alone; `full` costs a forward pass and holds
    long trajectories."""
    max_position_embeddings: Count = 32768
    """Longest position that the trainer prepares for, in tokens. Default 32768. With rotary positions it binds nothing:
    Miles replaces it by its sequence length."""
    untie_embeddings_and_output_weights: bool = True
    """Separate input and output embeddings. Documented default true, which Miles refuses for a model that ties them:
    unset in a HarborRLJob it follows the model."""
    no_masked_softmax_fusion: bool = True
    """Do not fuse scaling, mask and softmax. Default true: the fused kernel bears lengths up to 16384 alone."""
    num_rollout: Count = 200
    """Rollouts (steps) of the whole run. Default 200; absolute, so that a resume needs no change to it."""
    rollout_batch_size: Count = 64
    """Prompts a rollout. Default 64: times 8 samples it is one optimizer step of 512."""
    rollout_max_response_len: Count = 1024
    """Longest reply of one turn, in tokens. Default 1024; a reply that is cut ends its trajectory."""
    sglang_mem_fraction_static: Share = 0.7
    """Share of GPU memory that SGLang takes for weights and cache. Default 0.7 leaves room for a colocated trainer; too
    high ends in out-of-memory, too low in few requests at once."""
    train_iters: Count = 50
    """Megatron's own iteration count, for its schedule. Default 50; rollouts decide how long a run is."""
    global_batch_size: Count = 512
    """Samples an optimizer step. Default 512, one step a rollout; must divide `rolloutBatchSize x nSamplesPerPrompt`.
    """
    eval_interval: Annotated[int, Field(ge=0, le=1_000_000)] = 10
    """Rollouts between evaluations. Documented default 10. In a HarborRLJob `eval.interval` decides: left out without
    `eval`, since Miles refuses it without data, and refused beside it where it says another number, 0 included."""
    save_interval: Count = 10
    """Rollouts between checkpoints: what a failure can cost. Default 10: some hours of a large model."""
    miles_src_commit: Word = "9a003644739f4e6dd509e2e8337e8ae7e571941c"
    """Miles commit in the image; decides which flags are known. Default: that of the default image. An image of the
    versions table needs no word of it."""
