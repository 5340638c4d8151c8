"""MilesFrameworkConfig: the fields and rules that every framework on Miles shares.

Literal by design: `cli_args()` and `parsed_recipe_args()` give what training-gym's class of the same name gave
(observed at a646bb4), quirks included; `warnings_of` names the quirks that hurt. A runnable job comes from `launch`.
"""

import dataclasses
import shlex
from typing import Annotated, Any, get_args

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from harborrl_trainer.config.about import About

GPUS_PER_NODE = 8

_LEFTOVERS = frozenset({"gpu"})
"""Named by the documented skip list although no such field exists: kept, so that a forced attribute stays silent."""


@dataclass(config=ConfigDict(extra="forbid", validate_assignment=True, defer_build=True))
class MilesFrameworkConfig:
    """One training run on Miles, as the documented fields describe it."""

    miles_image: Annotated[str, About("image", home="trainer.image", emitted=False)] = "radixark/miles:dev-202603231227"
    """Container image with Miles, Megatron and SGLang. The default is a dated tag, since `latest` changes its flags
    from week to week; it decides which flags are known."""
    image_run_commands: Annotated[list[str], About("image", home="trainer.image", emitted=False)] = dataclasses.field(
        default_factory=list
    )
    """Shell commands that a Modal image runs while it is built. Default none. Kubernetes starts images as they are:
    build one of your own and name it."""
    n_nodes: Annotated[int, About("cluster", home="trainer.nodes", emitted=False)] = 1
    """Nodes of the cluster, each with 8 GPUs. Default 1: the smallest that holds training and rollout together."""
    recipe_args: Annotated[str, About("arguments", home="trainer.recipeArgs", emitted=False)] = ""
    """Miles flags of the recipe, one or more a line, `#` begins a comment, also inside quotes. Default none. They come
    after the typed fields and so override them."""
    extra_args: Annotated[str, About("arguments", home="trainer.extraArgs", emitted=False)] = ""
    """More flags, after `recipe_args`: the last word of a repeated flag wins. Default none."""
    custom_config_yaml: Annotated[str, About("arguments", home="trainer.customConfigYaml", emitted=False)] = ""
    """YAML mapping of argument names to values, which Miles sets after its own checks. Default none. It ranks highest,
    and nothing checks it later: a misspelt name is silently without effect."""
    colocate: Annotated[bool, About("cluster", emitted=False)] = True
    """Rollout engines share the trainer's GPUs and take turns. Default true: one node is enough. `mode: async` implies
    false, which needs a node of its own for rollout."""
    actor_nodes: Annotated[int | None, About("cluster", emitted=False, least=0, most=10_000)] = None
    """Nodes for training. Unset: all when colocated, else all but one, so that rollout keeps a node."""
    rollout_num_gpus: Annotated[int | None, About("cluster", emitted=False, least=-1_000_000, most=1_000_000)] = None
    """GPUs for rollout when not colocated. Unset, 0 or less: what the training nodes leave."""
    app_tags: Annotated[dict[str, Any], About("image", emitted=False)] = dataclasses.field(default_factory=dict)
    """Free labels of the run, kept in the job document. Default none; nothing is decided by them."""
    advantage_estimator: Annotated[str, About("algorithm")] = "grpo"
    """How rewards become advantages. Default grpo: centred within a prompt's group of samples, so no critic is needed.
    """
    eps_clip: Annotated[float, About("algorithm", least=0)] = 0.2
    """Half-width of the importance ratio's clip range. Default 0.2, PPO's; larger lets one step move the policy
    further."""
    clip_grad: Annotated[float, About("optimizer", least=0)] = 1.0
    """Largest gradient norm. Default 1: a bad batch cannot throw the weights far; above it gradients are scaled down.
    """
    kl_coef: Annotated[float, About("algorithm", least=0)] = 0.0
    """Weight of the KL penalty against the reference model: Miles takes it off the reward, native adds it (k3 estimate)
    to the loss. Default 0: no reference model is needed. Excludes Miles' `--kl-loss-coef`."""
    normalize_advantages: Annotated[bool, About("algorithm")] = False
    """Normalise advantages over the whole batch as well. Default false: the group has done so; `reinforce_plus_plus`
    needs true."""
    seed: Annotated[int, About("batch")] = 1234
    """Seed of sampling order and initialisation. Default 1234, Megatron's; the same seed repeats the order of prompts.
    """
    lr: Annotated[float, About("optimizer", above=0)] = 1e-6
    """Learning rate. Default fits full tuning of a large model; small models and LoRA need 10 to 100 times that."""
    lr_decay_style: Annotated[str, About("optimizer")] = "constant"
    """Learning-rate schedule. Default constant: a run that is extended needs no new schedule."""
    weight_decay: Annotated[float, About("optimizer", least=0)] = 0.0
    """AdamW weight decay. Default 0: RL moves weights little, and decay would pull them off the model."""
    adam_beta1: Annotated[float, About("optimizer", least=0, below=1)] = 0.9
    """AdamW first-moment decay. Default 0.9, the usual; higher averages gradients over more steps."""
    adam_beta2: Annotated[float, About("optimizer", least=0, below=1)] = 0.95
    """AdamW second-moment decay. Default 0.95: adapts within tens of steps; the documented launchers use 0.98."""
    micro_batch_size: Annotated[int, About("batch", least=1, most=1_000_000)] = 1
    """Samples in one forward and backward pass on a rank. Default 1: trajectories are long, memory is what is short."""
    n_samples_per_prompt: Annotated[int, About("batch", least=1, most=1_000_000)] = 8
    """Trials of each prompt, the GRPO group. Default 8; 1 makes every advantage zero. Times `rolloutBatchSize` gives
    the trials in flight."""
    bf16: Annotated[bool, About("precision")] = True
    """Train in bfloat16. Default true: half the memory of float32 and no loss scaling. Native keeps float32 weights and
    multiplies in bfloat16 where the processor can."""
    attention_softmax_in_fp32: Annotated[bool, About("precision")] = True
    """Compute the attention softmax in float32. Default true: log-probabilities of training and rollout stay close."""
    attention_dropout: Annotated[float, About("precision", least=0, most=1)] = 0.0
    """Dropout of attention weights, a share. Default 0: any makes log-probabilities of rollout and training differ."""
    hidden_dropout: Annotated[float, About("precision", least=0, most=1)] = 0.0
    """Dropout of hidden states, a share. Default 0, for the same reason."""
    rollout_temperature: Annotated[float, About("rollout", above=0)] = 1.0
    """Sampling temperature of rollouts. Default 1: samples come from the policy that is trained. Lower gives less
    spread within a group; the documented launchers use 0.8."""
    no_save_optim: Annotated[bool, About("checkpoint")] = True
    """Leave optimizer state out of checkpoints. Default true: a third of the size or less, but a resume restarts Adam's
    moments, which the condition Resumed then says."""
    megatron_to_hf_mode: Annotated[str, About("model")] = "bridge"
    """How weights go between Megatron and Hugging Face form. Default bridge: loads the model's own files; `raw` needs a
    converted checkpoint in `model.refLoad`."""

    @property
    def gpus_per_node(self) -> int:
        """Fixed at 8 by the documented machine type; a HarborRLJob has `trainer.gpusPerNode`."""
        return GPUS_PER_NODE

    def cli_args(self) -> list[str]:
        """Flags of the emitted fields in their order; true gives a bare flag, false and None give nothing.

        `eval_interval` is left out when it is 0: Miles would divide by it.
        """
        skipped = _skipped(type(self))
        words: list[str] = []
        for name, value in vars(self).items():
            if name.startswith("_") or name in skipped or (name == "eval_interval" and not value):
                continue
            words += _flag(name, value)
        return words

    def parsed_recipe_args(self) -> list[str]:
        """Words of `recipe_args`, then of `extra_args`; raises ValueError where a quote is not closed."""
        return split_arguments(self.recipe_args, self.extra_args)

    def resolved_actor_nodes(self) -> int:
        """Nodes that train; ValueError where nothing is left for rollout beside them."""
        if self.actor_nodes is not None:
            return self.actor_nodes
        if self.colocate:
            return self.n_nodes
        if self.n_nodes < 2:
            raise ValueError(
                "Non-colocated rollout needs spare cluster capacity. Either set colocate=True or bump n_nodes >= 2."
            )
        return self.n_nodes - 1

    def resolved_rollout_num_gpus(self) -> int | None:
        """GPUs of rollout alone; None when colocated. ValueError where none is spare."""
        if self.colocate:
            return None
        if self.rollout_num_gpus is not None and self.rollout_num_gpus > 0:
            return self.rollout_num_gpus
        actor_nodes = self.resolved_actor_nodes()
        spare = (self.n_nodes - actor_nodes) * self.gpus_per_node
        if spare < 1:
            raise ValueError(
                f"Non-colocated rollout has no spare GPUs — n_nodes={self.n_nodes}, actor_nodes={actor_nodes},"
                f" gpus_per_node={self.gpus_per_node}."
            )
        return spare


def split_arguments(*texts: str) -> list[str]:
    """Each line cut at its first `#` and stripped, empty ones dropped, the rest split as POSIX shell words."""
    lines = (line.split("#", 1)[0].strip() for text in texts for line in text.splitlines())
    return shlex.split("\n".join(line for line in lines if line))


def about(field: dataclasses.Field[Any]) -> About:
    """What a field of either class says of itself."""
    return next(item for item in get_args(field.type) if isinstance(item, About))


def _skipped(config: type[MilesFrameworkConfig]) -> frozenset[str]:
    return _LEFTOVERS | {field.name for field in dataclasses.fields(config) if not about(field).emitted}


def _flag(name: str, value: object) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, list):
        return [flag, *(str(item) for item in value)]
    return [flag, str(value)]
