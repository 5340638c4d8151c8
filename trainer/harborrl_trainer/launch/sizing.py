"""How a run is spread over GPUs: the launchers' arithmetic, and its refusals with the numbers."""

from collections.abc import Mapping
from dataclasses import dataclass

from harborrl_trainer.errors import ConfigurationError

ATTENTION_TP = 4
"""GPUs that share one attention head group in the asynchronous launcher's engines."""
DECODE_BATCH = 256
"""Requests that an engine of that launcher decodes at once for each group of ATTENTION_TP GPUs."""
LORA_ENGINE = 16
"""GPUs of an FP8 engine of GLM-5.2: with 8 the copy of the weights in host memory does not fit."""
LORA_PREFILL, LARGEST_PREFILL = 2048, 8192
"""Tokens of a prefill chunk for each GPU of such an engine, and at most."""


@dataclass(frozen=True)
class Shape:
    """What a job asks for, after defaults."""

    nodes: int
    gpus_per_node: int
    colocate: bool
    actor_nodes: int | None = None
    """Nodes that train; None: the rule of the sizing."""
    rollout_gpus: int | None = None
    parallelism: Mapping[str, int | None] | None = None
    """Explicit sizes over the preset's; None values are unset."""
    experts: int = 0


Sizes = dict[str, int | None]
"""Values of the presets' `{names}`."""


def largest_expert_parallel(experts: int, data_parallel: int) -> int:
    """Largest size that divides both the experts and the data-parallel ways."""
    return max(size for size in range(1, data_parallel + 1) if experts % size == 0 and data_parallel % size == 0)


def fixed(shape: Shape) -> Sizes:
    """Sizes as they are written; training and rollout share all GPUs unless told otherwise."""
    actor_nodes, rollout = _split(shape)
    return {**_ways(shape), "actorNodes": actor_nodes, "gpusPerNode": shape.gpus_per_node, "rolloutGpus": rollout}


def asynchronous(shape: Shape) -> Sizes:
    """One engine a rollout node; expert parallelism as large as data parallelism and experts allow."""
    actor_nodes = shape.actor_nodes or 1
    rollout_nodes = shape.nodes - actor_nodes
    if rollout_nodes < 1:
        raise ConfigurationError(
            f"trainer.nodes: {shape.nodes} nodes, of which {actor_nodes} train, leave none for rollout; set it to at"
            f" least {actor_nodes + 1}" + (", or trainer.config.actorNodes lower" if actor_nodes > 1 else "")
        )
    ways = _ways(shape)
    split, gpus = (ways["tp"] or 1) * (ways["pp"] or 1) * (ways["cp"] or 1), actor_nodes * shape.gpus_per_node
    if gpus % split:
        raise ConfigurationError(
            f"trainer.gpusPerNode: {gpus} training GPUs cannot be split by tensor x pipeline x context parallel size ="
            f" {split}; set trainer.gpusPerNode to a multiple of {split}, or trainer.parallelism lower"
        )
    engine = shape.gpus_per_node
    if engine % ATTENTION_TP:
        raise ConfigurationError(
            f"trainer.gpusPerNode: an engine of {engine} GPUs cannot be split into attention groups of {ATTENTION_TP};"
            f" set trainer.gpusPerNode to a multiple of {ATTENTION_TP}"
        )
    if ways["ep"] is None:
        ways["ep"] = largest_expert_parallel(shape.experts, gpus // split)
    return {
        **ways,
        "actorNodes": actor_nodes,
        "gpusPerNode": shape.gpus_per_node,
        "rolloutGpus": _rollout(shape, actor_nodes),
        "engine": engine,
        "attentionWays": engine // ATTENTION_TP,
        "runningRequests": engine * DECODE_BATCH // ATTENTION_TP,
        "chunkedPrefill": engine * DECODE_BATCH,
    }


def adapters(shape: Shape) -> Sizes:
    """GLM-5.2: tensor parallel within a node, expert parallel over all, engines of at most LORA_ENGINE GPUs."""
    sizes, world = fixed(shape), shape.nodes * shape.gpus_per_node
    engine = min(LORA_ENGINE, world)
    sizes["tp"] = sizes["tp"] or shape.gpus_per_node
    sizes["ep"] = sizes["ep"] or world
    if world % engine:
        raise ConfigurationError(
            f"trainer.nodes: {shape.nodes} x {shape.gpus_per_node} = {world} GPUs cannot be split into engines of"
            f" {engine}; set trainer.nodes so that the product is a multiple of {engine}"
        )
    return {**sizes, "engine": engine, "chunkedPrefill": min(LARGEST_PREFILL, LORA_PREFILL * engine)}


SIZINGS = {"fixed": fixed, "async": asynchronous, "lora": adapters}


def _split(shape: Shape) -> tuple[int, int]:
    """Training nodes and rollout GPUs."""
    if shape.colocate:
        nodes = shape.actor_nodes if shape.actor_nodes is not None else shape.nodes
        return nodes, nodes * shape.gpus_per_node
    nodes = shape.actor_nodes if shape.actor_nodes is not None else shape.nodes - 1
    spare = (shape.nodes - nodes) * shape.gpus_per_node
    if nodes < 1 or spare < 1:
        raise ConfigurationError(
            f"trainer.nodes: rollout beside training needs a node of its own, and {shape.nodes} nodes with {nodes} that"
            f" train leave {max(spare, 0)} GPUs; set trainer.nodes to at least {max(nodes, 1) + 1}"
        )
    return nodes, _rollout(shape, nodes)


def _rollout(shape: Shape, actor_nodes: int) -> int:
    """GPUs as asked for, else all that training leaves."""
    spare = (shape.nodes - actor_nodes) * shape.gpus_per_node
    asked = shape.rollout_gpus if shape.rollout_gpus is not None and shape.rollout_gpus > 0 else spare
    if asked > spare:
        raise ConfigurationError(
            f"trainer.config.rolloutNumGpus: {asked} GPUs for rollout, but {actor_nodes} of {shape.nodes} nodes train"
            f" and leave {spare}; set it to at most {spare}"
        )
    return asked


def _ways(shape: Shape) -> Sizes:
    given = shape.parallelism or {}
    return {name: given.get(name) for name in ("tp", "pp", "cp", "ep", "etp")}
