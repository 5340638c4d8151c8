"""I7: Miles' own rules over what admission knows of a job's arguments; the launch judges the whole line by the same.

What only the trainer can compute (a preset's shape over its nodes, say) is left to it: a rule that lacks a number is
silent here, and the preflight has it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import Reason
from harborrl_operator.miles_rules.admission import RULES, with_derived
from harborrl_operator.miles_rules.rule import first_broken
from harborrl_operator.miles_table import MilesPreset
from harborrl_operator.models.framework import FrameworkConfig
from harborrl_operator.observed import Observed
from harborrl_operator.resolve import ResolvedJob, preset_of

_WAYS = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
}
_NAMES = {field.alias: name for name, field in FrameworkConfig.model_fields.items()}
_EVALUATION = "eval_interval"
"""Field of `trainer.config` that `spec.eval` decides."""


def engine_accepts_arguments(job: ResolvedJob, _: Observed) -> Verdict | None:
    """The native engine takes no raw flags."""
    if job.spec.trainer.engine != "miles":
        return None
    said = first_broken(RULES, known_arguments(job))
    return None if said is None else Verdict(Reason.ARGUMENT_CONFLICT, f"trainer: {said}.")


def known_arguments(job: ResolvedJob) -> dict[str, Any]:
    """By name in snake_case, as the launch would have them: raw above typed, typed above a preset's."""
    preset, ways = preset_of(job.spec), _ways(job)
    typed = dict(_of_preset(job, preset) if preset else _documented(job))
    typed |= {_WAYS[name]: size for name, size in ways.items() if size is not None}
    typed |= dict(_by_other_fields(job, preset))
    training, rollout = _gpus(job, preset)
    return with_derived(
        {**typed, **job.raw.values},
        script="train_async.py" if job.spec.trainer.mode == "async" else "train.py",
        training_gpus=0 if None in ways.values() else training,
        rollout_gpus=rollout,
    )


def _documented(job: ResolvedJob) -> Iterator[tuple[str, Any]]:
    """All typed fields; what is false gives no flag."""
    for alias, value in job.config.items():
        if _NAMES[alias] != _EVALUATION and value is not None and value is not False:
            yield _NAMES[alias], value


def _of_preset(job: ResolvedJob, preset: MilesPreset) -> Mapping[str, Any]:
    """The launcher's arguments with the fields that the job writes in their places."""
    written = job.spec.trainer.config.model_dump(exclude_unset=True)
    explicit = {name: value for name, value in written.items() if name != _EVALUATION}
    return {
        name: value
        for name, value in {**preset.arguments, **explicit}.items()
        if value is not None and value is not False
    }


def _by_other_fields(job: ResolvedJob, preset: MilesPreset | None) -> Iterator[tuple[str, Any]]:
    trainer = job.spec.trainer
    yield "max_seq_len", job.max_seq_len
    if trainer.mode == "async":
        yield "fully_async", True
    if job.spec.eval is not None:
        yield "eval_interval", job.config["evalInterval"]
        yield "eval_prompt_data", job.spec.eval.jsonl
    if trainer.lora is not None:
        yield "lora_rank", trainer.lora.rank
    elif preset is not None and preset.lora is not None:
        yield "lora_rank", preset.lora["rank"]


def _ways(job: ResolvedJob) -> dict[str, int | None]:
    """Parallel sizes; None: the preset computes it."""
    preset, asked = preset_of(job.spec), job.spec.trainer.parallelism
    given: Mapping[str, int | None] = preset.parallelism if preset else dict.fromkeys(_WAYS, 1)
    explicit = asked.model_dump() if asked else {}
    return {name: explicit.get(name) or given[name] for name in _WAYS}


def _gpus(job: ResolvedJob, preset: MilesPreset | None) -> tuple[int, int]:
    """GPUs that train and that roll out; 0 where the trainer alone knows."""
    nodes, each = job.spec.trainer.nodes, job.gpus_per_node
    colocate, train = job.config["colocate"], job.config.get("actorNodes")
    train = (nodes if colocate else nodes - 1) if train is None else train
    training = max(train, 1) * each
    if colocate:
        return training, training
    asked = job.config.get("rolloutNumGpus") or 0
    if asked > 0:
        return training, 0 if preset else asked
    return training, max(nodes - train, 0) * each
