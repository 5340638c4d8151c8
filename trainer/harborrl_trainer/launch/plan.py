"""`launch`: a job and a place to start -> script and flags, environment, files; every deviation with its reason.

Order of the flags without a preset: typed fields, model architecture, parallelism, adapters, `recipeArgs`, `extraArgs`,
and the documented tail that other fields of the job decide. With a preset the launcher's own order comes first, with
what the job sets explicitly in its places. A flag of the tail is either refused in the raw texts or theirs stands, so
nothing is overridden in silence.
"""

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.launch.base import add_fixed_tail, documented, from_preset
from harborrl_trainer.launch.context import Context, context_of
from harborrl_trainer.launch.environment import environment, logs_to_wandb, proxies_taken_away
from harborrl_trainer.launch.judging import fault
from harborrl_trainer.launch.raw import custom_config, raw_arguments
from harborrl_trainer.launch.remarks import over_architecture
from harborrl_trainer.launch.seam import Adjustment, Launch, Start
from harborrl_trainer.launch.words import CommandLine, effective

CUSTOM_CONFIG = "custom-config.yaml"
SENTINEL = "save-trigger"
"""File beside the checkpoints that Miles takes as a wish for one, and removes."""


def launch(job: JobDocument, start: Start) -> Launch:
    """Pure; raises ConfigurationError with field or flag, the numbers and the smallest change that helps."""
    context = context_of(job, start)
    notes = [*context.adjustments, *proxies_taken_away(job)]
    line = from_preset(context, notes) if context.preset else documented(context)
    raw, remarks = raw_arguments(job, context.version)
    line.arguments += raw
    values, more_remarks = custom_config(job, context.version)
    if context.preset is None:
        add_fixed_tail(context, line, notes)
    _add_logging(context, line)
    _add_tail(context, line, notes)
    _forget_unknown_options(context, line, notes)
    settings = {**effective(line.arguments), **values}
    broken = fault(settings, context)
    if broken is not None:
        raise ConfigurationError(broken)
    files = dict(context.files)
    if job.custom_config_yaml.strip():
        files[str(start.files / CUSTOM_CONFIG)] = job.custom_config_yaml
    return Launch(
        argv=(context.script, *line.words()),
        env=environment(job, start, context.version, context.preset),
        files=files,
        adjustments=(*notes, *remarks, *more_remarks, *over_architecture(context.model, {**effective(raw), **values})),
        models=(context.served,) if context.served and settings.get("sglang_config") in context.files else (),
        remarks=(*remarks, *more_remarks),
    )


def _add_logging(context: Context, line: CommandLine) -> None:
    """The key stays in the environment, where `wandb` finds it: argv is readable by everybody on the node."""
    job = context.job
    if not logs_to_wandb(job):
        return
    line.add_unless_there("--use-wandb")
    if "WANDB_PROJECT" not in job.env_names:
        line.add_unless_there("--wandb-project", job.job.namespace)
    line.add_unless_there("--wandb-group", job.job.name)
    line.add_unless_there("--disable-wandb-random-suffix")


def _add_tail(context: Context, line: CommandLine, notes: list[Adjustment]) -> None:
    """What the job's other fields decide and the launchers leave out."""
    job, start = context.job, context.start
    _add_evaluation(context, line)
    _add_start(context, line)
    line.put("--pin-rollout-manager-to-head")
    if context.version.sentinel:
        line.put(context.version.sentinel, start.checkpoints / SENTINEL)
    else:
        reason = (
            f"Miles {context.version.short} saves on its interval alone: a stop waits for the next periodic checkpoint"
            " (config.saveInterval), a preemption loses what was trained since the last one"
        )
        notes.append(Adjustment("checkpoint on request", "none", reason))
    if "trajectory" not in context.version.dumps:
        reason = f"Miles {context.version.short} writes no trajectory dumps"
        notes.append(Adjustment("traces/trajectory", "none", reason))
    if job.custom_config_yaml.strip():
        line.put("--custom-config-path", start.files / CUSTOM_CONFIG)


def _add_evaluation(context: Context, line: CommandLine) -> None:
    evaluation = context.job.eval
    if evaluation is not None:
        line.put("--eval-interval", evaluation.interval)
        line.put("--eval-prompt-data", "eval", evaluation.jsonl)
        line.put("--n-samples-per-eval-prompt", evaluation.samples_per_prompt)
    if line.has("--eval-interval"):
        line.add_unless_there("--custom-eval-rollout-log-function-path", context.names["evaluation"])


def _add_start(context: Context, line: CommandLine) -> None:
    """Explicit in every case: Miles goes back to rollout 0 where it finds no tracker file.

    From an adapter too: its ids go on by Miles' configuration file, which whoever starts Miles completes.
    """
    start = context.start
    if start.adapter is not None:
        line.put("--lora-adapter-path", start.adapter)
    if start.load is None:
        line.put("--start-rollout-id", 0)
        return
    line.put("--load", start.load)
    line.put("--start-rollout-id", start.start_rollout)
    if not start.optimizer:
        line.put("--no-load-optim")


def _forget_unknown_options(context: Context, line: CommandLine, notes: list[Adjustment]) -> None:
    """Our own additions only: what a user or a preset writes is refused instead."""
    reason = f"Miles {context.version.short} does not know it"
    added = ("--pin-rollout-manager-to-head", "--lora-base-cpu-backup")
    unknown = [flag for flag in added if not context.version.knows(flag) and line.drop(flag)]
    notes.extend(Adjustment(flag, "left out", reason) for flag in unknown)
