"""What an engine of this version cannot do: refused by name, since a field that nobody reads costs a whole run."""

from collections.abc import Iterator

from harborrl_operator.conditions import Verdict
from harborrl_operator.constants import GPU_RESOURCE, Reason
from harborrl_operator.models.framework import FrameworkConfig
from harborrl_operator.observed import Observed
from harborrl_operator.resolve import ResolvedJob

NATIVE_READS = frozenset(
    {
        "adam_beta1",
        "adam_beta2",
        "clip_grad",
        "enable_thinking",
        "eps_clip",
        "global_batch_size",
        "kl_coef",
        "lr",
        "micro_batch_size",
        "n_samples_per_prompt",
        "no_save_optim",
        "normalize_advantages",
        "num_rollout",
        "rollout_batch_size",
        "rollout_max_response_len",
        "rollout_shuffle",
        "rollout_temperature",
        "save_interval",
        "seed",
        "weight_decay",
    }
)
"""Fields of `trainer.config` that the native engine reads (a test compares them with the trainer's own list)."""

_LABELS = "app_tags"
"""For people, and kept with every engine."""


def engine_is_available(job: ResolvedJob, _: Observed) -> Verdict | None:
    """Miles comes with its image alone."""
    if job.spec.trainer.engine != "miles" or job.trainer_image:
        return None
    return Verdict(
        Reason.ENGINE_UNAVAILABLE,
        "Engine miles needs an image with Miles, and neither trainer.image nor the installation (chart value"
        " images.miles) names one. Set trainer.image, or trainer.engine: native.",
    )


def gpus_are_asked_for_in_one_place(job: ResolvedJob, _: Observed) -> Verdict | None:
    """Beside `gpusPerNode` they would be overwritten with miles, and held for nothing with native."""
    wanted = job.spec.trainer.resources
    named = {*wanted.requests, *wanted.limits} if wanted else set()
    if GPU_RESOURCE not in named:
        return None
    return Verdict(
        Reason.FIELD_UNSUPPORTED,
        f"trainer.resources names {GPU_RESOURCE}, which trainer.gpusPerNode ({job.gpus_per_node}) decides. Remove it"
        " from requests and limits, and set gpusPerNode if you need another number.",
    )


def evaluation_is_told_once(job: ResolvedJob, _: Observed) -> Verdict | None:
    """Two fields have the interval. The API server fills in `eval.interval`, so that either may be the one meant."""
    asked, evaluation = job.spec.trainer.config, job.spec.eval
    if job.spec.trainer.engine != "miles" or evaluation is None or "eval_interval" not in asked.model_fields_set:
        return None
    if asked.eval_interval == evaluation.interval:
        return None
    remedy = "spec.eval out" if asked.eval_interval == 0 else "trainer.config.evalInterval out and set eval.interval"
    return Verdict(
        Reason.ARGUMENT_CONFLICT,
        f"trainer.config.evalInterval is {asked.eval_interval} and eval.interval {evaluation.interval} (20 where it is"
        f" left out). Leave {remedy}.",
    )


def native_reads_every_field(job: ResolvedJob, _: Observed) -> Verdict | None:
    """A value that is what the native engine does anyway may stand, so that a documented default can be spelt out."""
    if job.spec.trainer.engine != "native":
        return None
    ignored = [*_unread_options(job), *_unread_config(job.spec.trainer.config)]
    if not ignored:
        return None
    return Verdict(
        Reason.FIELD_UNSUPPORTED,
        f"Engine native does not read {', '.join(ignored)}: the run would be another one than you asked for. Remove it"
        " (for evalInterval use eval.interval).",
    )


def _unread_options(job: ResolvedJob) -> Iterator[str]:
    trainer, model = job.spec.trainer, job.spec.model
    parallelism = trainer.parallelism.model_dump().values() if trainer.parallelism else ()
    unread = {
        "model.refLoad": model.ref_load is not None,
        "model.type": model.type is not None,
        "trainer.preset": trainer.preset is not None,
        "trainer.mode async": trainer.mode == "async",
        "trainer.lora": trainer.lora is not None,
        "trainer.parallelism": any(ways is not None and ways > 1 for ways in parallelism),
        "trainer.ports.sessionCount": trainer.ports.session_count > 1,
    }
    yield from (name for name, asked in unread.items() if asked)
    if job.raw.values:
        raw = {
            "trainer.recipeArgs": trainer.recipe_args,
            "trainer.extraArgs": trainer.extra_args,
            "trainer.customConfigYaml": trainer.custom_config_yaml,
        }
        yield from (name for name, text in raw.items() if text.strip())


def _unread_config(config: FrameworkConfig) -> Iterator[str]:
    fields = type(config).model_fields
    for name in sorted(config.model_fields_set - NATIVE_READS - {_LABELS}):
        if getattr(config, name) != fields[name].get_default(call_default_factory=True):
            yield f"trainer.config.{fields[name].alias}"
