"""The flags that come before a job's raw ones: a preset's with the job's values in place, or the documented order."""

import dataclasses
import math
from collections.abc import Iterator

from pydantic.alias_generators import to_camel

from harborrl_trainer.config import HarborFrameworkConfig
from harborrl_trainer.config.miles import about
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.launch.context import Context
from harborrl_trainer.launch.remarks import NO_ABORTED
from harborrl_trainer.launch.seam import Adjustment
from harborrl_trainer.launch.words import CommandLine, arguments_of, filled

_BY_THE_JOB = frozenset({"eval_interval"})
"""Emitted fields that another part of the job decides."""

_WAYS = {
    "tp": "--tensor-model-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "cp": "--context-parallel-size",
    "ep": "--expert-model-parallel-size",
    "etp": "--expert-tensor-parallel-size",
}

_LITERAL_TAIL = (
    ("--train-backend", "megatron"),
    ("--hf-checkpoint", "{model}"),
    ("--ref-load", "{refLoad}"),
    ("--save", "{save}"),
    ("--actor-num-nodes", "{actorNodes}"),
    ("--actor-num-gpus-per-node", "{gpusPerNode}"),
    ("--num-gpus-per-node", "{gpusPerNode}"),
    ("--prompt-data", "{promptData}"),
    ("--metadata-key", "metadata"),
    ("--max-seq-len", "{maxSeqLen}"),
    ("--custom-generate-function-path", "{generate}"),
    ("--custom-agent-function-path", "{agent}"),
    ("--custom-rm-path", "{reward}"),
    ("--dynamic-sampling-filter-path", NO_ABORTED),
    ("--tito-model", "{tito}"),
    ("--sglang-tool-call-parser", "{toolCallParser}"),
    ("--sglang-reasoning-parser", "{reasoningParser}"),
    ("--use-session-server",),
    ("--session-server-port", "{sessionPort}"),
    ("--sglang-router-port", "{routerPort}"),
    ("--dump-details", "{traces}"),
)
"""The documented tail (train.py's fixed flags), with what agents and operator need."""


def from_preset(context: Context, notes: list[Adjustment]) -> CommandLine:
    """The launcher's list; explicit fields of `trainer.config` take the place of its values."""
    preset = context.preset
    assert preset is not None  # noqa: S101 - the caller has looked
    line = CommandLine()
    _add(line, context, context.model.arguments if context.model else ())
    _add(line, context, preset.arguments)
    for name, words in _explicit(context):
        flag = "--" + name.replace("_", "-")
        if words is None:
            line.drop(flag)
        else:
            line.put(flag, *words)
    if context.job.model.ref_load is None and not preset.lora and context.lora is None:
        _load_through_the_bridge(context, line, notes, "model.refLoad is unset")
    if context.lora is not None and not preset.lora:
        _add_adapters(context, line)
        _load_through_the_bridge(context, line, notes, "an adapter is trained")
    for words in context.version.arguments:
        line.add(*words)
    _add_thinking(context, line)
    return line


def documented(context: Context) -> CommandLine:
    """Typed fields, architecture, parallelism and adapters, in the documented order."""
    values = {name: value for name, value in context.job.config.model_dump().items() if value is not None}
    values.setdefault("untie_embeddings_and_output_weights", False)
    values["eval_interval"] = 0
    line = CommandLine(list(arguments_of(HarborFrameworkConfig(**values).cli_args())))
    _add(line, context, _architecture(context))
    for name, flag in _WAYS.items():
        line.add(flag, context.sizes[name] or 1)
    if (context.sizes["tp"] or 1) > 1:
        line.add("--sequence-parallel")
    if context.lora is not None:
        _add_adapters(context, line)
    for words in context.version.arguments:
        line.add(*words)
    _add_thinking(context, line)
    return line


def add_fixed_tail(context: Context, line: CommandLine, notes: list[Adjustment]) -> None:
    """The documented tail. Its flags are refused in the raw texts, or theirs stand."""
    config = context.job.config
    names = context.names
    for template in _LITERAL_TAIL:
        words = filled(template[1:], names)
        if words is not None:
            line.add_unless_there(template[0], *words)
    if not line.has("--ref-load"):
        line.add("--ref-load", context.job.model.path)
        if config.megatron_to_hf_mode != "bridge":
            _load_through_the_bridge(context, line, notes, "model.refLoad is unset")
    elif context.lora is not None:
        _load_through_the_bridge(context, line, notes, "an adapter is trained")
    if context.job.mode == "async":
        line.add_unless_there("--fully-async")
    else:
        line.add_unless_there("--rollout-function-path", names["rollout"])
    if config.colocate:
        line.add("--colocate")
    else:
        line.add("--rollout-num-gpus", context.sizes["rolloutGpus"])


def _architecture(context: Context) -> tuple[tuple[str, ...], ...]:
    if context.model is not None:
        return context.model.arguments
    if "--num-layers" in context.job.recipe_args + context.job.extra_args:
        return ()
    raise ConfigurationError(
        f"model.type: not set, and directory '{context.job.model.path.name}' tells none; set model.type to a known"
        " type, or give the architecture in trainer.recipeArgs (--num-layers, --hidden-size ...)"
    )


def _add(line: CommandLine, context: Context, templates: tuple[tuple[str, ...], ...]) -> None:
    names = context.names
    for template in templates:
        words = filled(template[1:], names)
        if words is not None:
            line.add(template[0], *words)


def _explicit(context: Context) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """Fields that the user wrote, with their words; None takes the flag away."""
    written = set(context.job.explicit_config)
    for field in dataclasses.fields(HarborFrameworkConfig):
        emitted = about(field).emitted or field.name == "colocate"  # which the documented order has in its tail
        if to_camel(field.name) not in written or not emitted or field.name in _BY_THE_JOB:
            continue
        value = getattr(context.job.config, field.name)
        if value is None or value is False:
            yield field.name, None
        elif value is True:
            yield field.name, ()
        else:
            yield field.name, (_said(value),)


def _said(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigurationError(f"trainer.config: {value} is no number that can be trained with; correct it")
    return str(value)


def _add_adapters(context: Context, line: CommandLine) -> None:
    names = context.names
    line.add("--lora-rank", names["loraRank"])
    line.add("--lora-alpha", names["loraAlpha"])
    line.add("--lora-dropout", "0.0")
    line.add("--target-modules", names["loraTargets"])
    if context.job.config.colocate:
        # Without the copy the engines serve other base weights than the trainer's after the first hand-over.
        line.add("--lora-base-cpu-backup")


def _load_through_the_bridge(context: Context, line: CommandLine, notes: list[Adjustment], why: str) -> None:
    path = context.job.model.path
    line.put("--megatron-to-hf-mode", "bridge")
    line.put("--ref-load", path)
    notes.append(Adjustment("--ref-load", str(path), f"{why}: weights come from the model's own files over the bridge"))


def _add_thinking(context: Context, line: CommandLine) -> None:
    if "enableThinking" in context.job.explicit_config and not context.job.config.enable_thinking:
        line.add("--apply-chat-template-kwargs", '{"enable_thinking": false}')
