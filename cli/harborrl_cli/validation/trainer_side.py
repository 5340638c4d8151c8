"""What the trainer's own configuration says: values that are hardly meant, and arguments that Miles would refuse."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from pydantic.alias_generators import to_camel

from harborrl_cli.validation.findings import Finding, told
from harborrl_operator.models import JobSpec, Settings
from harborrl_operator.resolve import ResolvedJob
from harborrl_operator.second_try import no_second_try
from harborrl_operator.unreachable import unreachable
from harborrl_trainer.config import HarborFrameworkConfig, warnings_of
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import parse_job
from harborrl_trainer.launch import Adjustment, Launch, launch
from harborrl_trainer.launch.argv_command import dry_start, said_once

_RAW = ("recipe_args", "extra_args", "custom_config_yaml")
_REFUSED_ELSEWHERE = ("global_batch_size",)
"""What an operator's check refuses with its numbers needs no warning beside it."""


def config_warnings(spec: JobSpec) -> Iterator[Finding]:
    """One for each value that the job itself sets; what a preset decides is not the job's to mend."""
    explicit = spec.trainer.config.model_dump(exclude_unset=True)
    known = {field.name for field in fields(HarborFrameworkConfig)}
    given: Mapping[str, Any] = {
        "colocate": spec.trainer.mode != "async",
        **{name: value for name, value in explicit.items() if name in known and value is not None},
        **{name: getattr(spec.trainer, name) for name in _RAW},
        "n_nodes": spec.trainer.nodes,
    }
    said = {*explicit, *_RAW} - {*_REFUSED_ELSEWHERE}
    for quirk in warnings_of(HarborFrameworkConfig(**given)):
        if quirk.field in said:
            where = "spec.trainer" if quirk.field in _RAW else "spec.trainer.config"
            yield Finding(f"{where}.{to_camel(quirk.field)}", quirk.message, "warning")


def second_try_warning(spec: JobSpec) -> Iterator[Finding]:
    said = no_second_try(spec)
    if said:
        yield Finding("spec.agentServer", f"{said}.", "warning")


def unreachable_warning(spec: JobSpec, settings: Settings) -> Iterator[Finding]:
    """The platform may open more than a manifest shows; `network.egress` of its chart is not to be seen from here."""
    said = unreachable(spec, settings)
    if said:
        yield Finding("spec.network.egress", f"{said}.", "warning")


class Launched(NamedTuple):
    """What a launch of the job for Miles says."""

    fault: Finding | None = None
    """I7, whole: its first fault."""
    remarks: tuple[Finding, ...] = ()
    """Raw arguments that are kept, and hardly meant."""
    made: Launch | None = None
    """None with engine native, and where there is a fault."""


def launched(job: ResolvedJob) -> Launched:
    if job.spec.trainer.engine != "miles":
        return Launched()
    try:
        document = parse_job(json.dumps(job.document(attempt=1)), "the resolved job")
        made = launch(document, dry_start(document))
    except ConfigurationError as error:
        return Launched(told(str(error), "ArgumentConflict"))
    return Launched(None, tuple(_remark(note) for note in made.remarks), made)


def adjustments(job: ResolvedJob, started: Launched) -> list[Adjustment]:
    """What operator and launch set that the job leaves open."""
    notes = [Adjustment(one.field, one.value, one.reason) for one in job.adjustments]
    return said_once(notes, started.made) if started.made else notes


def _remark(note: Adjustment) -> Finding:
    field, _, argument = note.what.partition(": ")
    return Finding(f"spec.{field}", f"{argument}: {note.value} ({note.reason})", "warning")
