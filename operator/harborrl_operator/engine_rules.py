"""I7: rules of Miles' own argument parser that can be known ahead, as data: breaking one ends a run at its first line.

Read in miles/utils/arguments.py and the launchers (2026-08). A rule speaks only about values that are known here; the
trainer judges the whole command line in preflight (harborrl_trainer.launch.rules).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.models.framework import FrameworkConfig
from harborrl_operator.resolve import ResolvedJob

Arguments = Mapping[str, Any]
"""By name in snake_case; absent what the engine's default decides."""

_FALSE = (None, False, 0, 0.0, "", "0", "0.0", "false", "False")


@dataclass(frozen=True)
class Rule:
    """`broken` of the effective arguments; `says` is formatted with them."""

    broken: Callable[[Arguments], bool]
    says: str


def _on(arguments: Arguments, *names: str) -> bool:
    return all(arguments.get(name) not in _FALSE for name in names)


def _number(arguments: Arguments, name: str, otherwise: float = 0) -> float:
    try:
        return float(arguments.get(name, otherwise))
    except (TypeError, ValueError):
        return otherwise


def _is(arguments: Arguments, name: str, value: str) -> bool:
    return arguments.get(name) == value


def _uneven_steps(a: Arguments) -> bool:
    names = ("num_steps_per_rollout", "rollout_batch_size", "n_samples_per_prompt", "global_batch_size")
    steps, prompts, samples, batch = (int(_number(a, name)) for name in names)
    return steps > 0 and min(prompts, samples, batch) > 0 and prompts * samples // steps != batch


def _asynchronously(name: str) -> Callable[[Arguments], bool]:
    return lambda a: _is(a, "mode", "async") and _on(a, name)


RULES: tuple[Rule, ...] = (
    Rule(
        lambda a: 0 < _number(a, "over_sampling_batch_size") < _number(a, "rollout_batch_size"),
        "over-sampling-batch-size {over_sampling_batch_size} is below rolloutBatchSize {rollout_batch_size}. Set it to"
        " at least {rollout_batch_size}, or leave it out",
    ),
    Rule(
        _uneven_steps,
        "num-steps-per-rollout {num_steps_per_rollout} wants globalBatchSize to be rolloutBatchSize"
        " {rollout_batch_size} x nSamplesPerPrompt {n_samples_per_prompt} / {num_steps_per_rollout}, not"
        " {global_batch_size}. Correct globalBatchSize, or leave num-steps-per-rollout out",
    ),
    Rule(
        lambda a: _number(a, "kl_coef") != 0 and _number(a, "kl_loss_coef") != 0,
        "klCoef {kl_coef} puts the KL penalty into the reward and kl-loss-coef {kl_loss_coef} into the loss. Set one of"
        " them to 0",
    ),
    Rule(
        lambda a: _on(a, "use_rollout_logprobs", "use_tis"),
        "use-rollout-logprobs and use-tis exclude each other. Remove one",
    ),
    Rule(
        lambda a: (
            str(a.get("advantage_estimator", "")).startswith("reinforce_plus_plus")
            and not _on(a, "normalize_advantages")
        ),
        "advantageEstimator {advantage_estimator} needs normalizeAdvantages: true. Set it",
    ),
    Rule(
        lambda a: _on(a, "eval_interval") and not a.get("has_eval"),
        "eval-interval {eval_interval} needs evaluation data. Set spec.eval, or remove the flag",
    ),
    Rule(
        lambda a: _on(a, "use_dynamic_batch_size") and not _on(a, "max_tokens_per_gpu"),
        "use-dynamic-batch-size needs max-tokens-per-gpu. Set it, for example to 8192",
    ),
    Rule(
        lambda a: _on(a, "lora_rank") and not _on(a, "target_modules"),
        "lora-rank {lora_rank} needs target-modules. Use trainer.lora, which has both",
    ),
    Rule(
        lambda a: (
            _number(a, "pipeline_model_parallel_size", 1) == 1
            and (_on(a, "decoder_first_pipeline_num_layers") or _on(a, "decoder_last_pipeline_num_layers"))
        ),
        "decoder-first- and decoder-last-pipeline-num-layers need a pipeline parallel size above 1. Set"
        " parallelism.pp, or remove them",
    ),
    Rule(
        lambda a: _is(a, "pause_generation_mode", "in_place") and _is(a, "update_weight_transfer_mode", "p2p"),
        "pause-generation-mode in_place and update-weight-transfer-mode p2p exclude each other. Use broadcast with"
        " in_place, or retract with p2p",
    ),
    Rule(
        lambda a: _is(a, "pause_generation_mode", "abort"),
        "pause-generation-mode abort cannot be used with the session server that agents need. Use in_place or retract",
    ),
    Rule(
        lambda a: _is(a, "mode", "sync") and _on(a, "fully_async"),
        "fully-async runs under train_async.py alone. Set trainer.mode: async, or remove the flag",
    ),
    *(
        Rule(
            _asynchronously(name),
            f"{name.replace('_', '-')} cannot be used in mode async. Remove it, or set trainer.mode: sync",
        )
        for name in (
            "colocate",
            "partial_rollout",
            "multi_lora",
            "rollout_function_path",
            "recompute_logprobs_via_prefill",
        )
    ),
    Rule(
        lambda a: _on(a, "training_gpus") and int(a["training_gpus"]) % _model_ways(a) != 0,
        "{training_gpus} training GPUs cannot be split by tensor x pipeline x context parallel size ="
        " {model_ways}. Set trainer.parallelism so that the product divides them, or give other nodes or GPUs",
    ),
    Rule(
        lambda a: _on(a, "training_gpus") and int(a["training_gpus"]) % _expert_ways(a) != 0,
        "{training_gpus} training GPUs cannot be split by expert x expert tensor x pipeline parallel size ="
        " {expert_ways}. Set trainer.parallelism so that the product divides them, or give other nodes or GPUs",
    ),
)


def _model_ways(a: Arguments) -> int:
    return _product(a, "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


def _expert_ways(a: Arguments) -> int:
    return _product(a, "expert_model_parallel_size", "expert_tensor_parallel_size", "pipeline_model_parallel_size")


def _product(a: Arguments, *names: str) -> int:
    out = 1
    for name in names:
        out *= max(int(_number(a, name, 1)), 1)
    return out


def engine_accepts_arguments(job: ResolvedJob, _: object) -> Verdict | None:
    """I7 for engine miles; the native engine takes no raw flags."""
    if job.spec.trainer.engine != "miles":
        return None
    arguments = effective_arguments(job)
    said = next(_broken(arguments), None)
    if said is None:
        return None
    return Verdict(Reason.ARGUMENT_CONFLICT, f"Miles refuses these arguments: {said}.")


def _broken(arguments: Arguments) -> Iterator[str]:
    shown = {**arguments, "model_ways": _model_ways(arguments), "expert_ways": _expert_ways(arguments)}
    for rule in RULES:
        if rule.broken(arguments):
            yield rule.says.format(**shown)


def effective_arguments(job: ResolvedJob) -> dict[str, Any]:
    """Typed values below raw ones; a bare flag is true. A preset's values are among the typed ones."""
    trainer = job.spec.trainer
    names = {field.alias: name for name, field in FrameworkConfig.model_fields.items()}
    known = {names[alias]: value for alias, value in job.config.items() if alias not in ("evalInterval", "colocate")}
    parallel = trainer.parallelism
    typed: dict[str, Any] = {
        "mode": trainer.mode,
        "has_eval": job.spec.eval is not None or "eval_prompt_data" in job.raw.values,
        "colocate": job.config.get("colocate"),
        "lora_rank": trainer.lora.rank if trainer.lora else None,
        "target_modules": trainer.lora.target_modules if trainer.lora else None,
        "tensor_model_parallel_size": parallel.tp if parallel else None,
        "pipeline_model_parallel_size": parallel.pp if parallel else None,
        "context_parallel_size": parallel.cp if parallel else None,
        "expert_model_parallel_size": parallel.ep if parallel else None,
        "expert_tensor_parallel_size": parallel.etp if parallel else None,
        "training_gpus": _training_gpus(job),
    }
    raw = {name: True if value is None else value for name, value in job.raw.values.items()}
    return {name: value for name, value in {**known, **typed, **raw}.items() if value is not None}


def _training_gpus(job: ResolvedJob) -> int | None:
    """GPUs that train: all when colocated, else those of `actorNodes` (a preset may say), else of all nodes but one."""
    nodes = job.spec.trainer.nodes
    if not job.config["colocate"]:
        nodes = job.config.get("actorNodes") or nodes - 1
    return nodes * job.gpus_per_node or None
