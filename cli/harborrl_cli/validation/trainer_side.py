"""What the trainer's own configuration says: values that are hardly meant, and arguments that Miles would refuse."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pydantic.alias_generators import to_camel

from harborrl_cli.validation.findings import Finding, field_of
from harborrl_operator.models import JobSpec
from harborrl_operator.resolve import ResolvedJob
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import parse_job

CONFIG = "harborrl_trainer.config"
ARGV = "harborrl_trainer.launch.argv_command"
"""Both come with engine miles; a tree without them has nothing to say here."""

_RAW = ("recipe_args", "extra_args", "custom_config_yaml")
_REFUSED_ELSEWHERE = ("global_batch_size",)
"""What an operator's check refuses with its numbers needs no warning beside it."""


def is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def config_warnings(spec: JobSpec) -> Iterator[Finding]:
    """One for each value that the job itself sets; what a preset decides is not the job's to mend."""
    if not is_there(CONFIG):
        return
    config: Any = import_module(CONFIG)
    explicit = spec.trainer.config.model_dump(exclude_unset=True)
    known = {field.name for field in fields(config.HarborFrameworkConfig)}
    given: Mapping[str, Any] = {
        **{name: value for name, value in explicit.items() if name in known and value is not None},
        **{name: getattr(spec.trainer, name) for name in _RAW},
        "n_nodes": spec.trainer.nodes,
    }
    said = {*explicit, *_RAW} - {*_REFUSED_ELSEWHERE}
    for quirk in config.warnings_of(config.HarborFrameworkConfig(**given)):
        if quirk.field in said:
            where = "spec.trainer" if quirk.field in _RAW else "spec.trainer.config"
            yield Finding(f"{where}.{to_camel(quirk.field)}", quirk.message, "warning")


def launch_fault(job: ResolvedJob) -> Iterator[Finding]:
    """I7, whole: what a launch of this job for Miles would end with."""
    if job.spec.trainer.engine != "miles" or not is_there(ARGV):
        return
    command: Any = import_module(ARGV)
    try:
        document = parse_job(json.dumps(job.document(attempt=1)), "the resolved job")
        command.launch(document, command.dry_start(document))
    except ConfigurationError as error:
        field = field_of(str(error))
        message = str(error).removeprefix(f"{field.removeprefix('spec.')}: ")
        yield Finding(field, message, reason="ArgumentConflict")
