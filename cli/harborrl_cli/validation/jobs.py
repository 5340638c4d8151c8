"""A document -> its findings: form first, then rules, then what the operator would say on a cluster that has it all."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harborrl_cli.validation.data import check_data
from harborrl_cli.validation.findings import Finding, field_of, told
from harborrl_cli.validation.trainer_side import (
    Launched,
    adjustments,
    config_warnings,
    launched,
    second_try_warning,
    unreachable_warning,
)
from harborrl_operator.arguments import InvalidArgumentsError
from harborrl_operator.capacity import tightness
from harborrl_operator.checks import CHECKS
from harborrl_operator.constants import LABEL_SANDBOXES, Reason
from harborrl_operator.manifests.form import form_faults, is_job, metadata_of, stored_spec
from harborrl_operator.models import HarborRLJob, Settings
from harborrl_operator.models.job import InvalidJobError, parse_job
from harborrl_operator.observed import Observed, Surroundings
from harborrl_operator.preflight_verdict import Facts
from harborrl_operator.resolve import ResolvedJob, resolve


@dataclass(frozen=True)
class Assumed:
    """What only the cluster knows, as it should be."""

    namespace: str = "default"
    """Of a manifest that names none."""
    gang_scheduler: str = ""
    """As in the chart's defaults."""
    task_root: Path | None = None
    """Stands for the tasks volume."""
    data: Path | None = None
    """Stands for `data.jsonl`."""


@dataclass(frozen=True)
class Judged:
    """One document."""

    name: str
    """`namespace/name` of a job, else what was skipped."""
    is_job: bool
    findings: tuple[Finding, ...]
    adjustments: tuple[Mapping[str, str], ...] = field(default_factory=tuple)
    """What operator and launch set that the job leaves open, and why."""

    @property
    def is_refused(self) -> bool:
        return any(finding.severity == "refused" for finding in self.findings)


def judge(value: Any, assumed: Assumed) -> Judged:
    """Never raises: a document of any content has findings."""
    if not is_job(value):
        kind = value.get("kind") if isinstance(value, dict) else None
        said = f"{kind or 'a document without a kind'} is not judged here"
        return Judged(str(kind), is_job=False, findings=(Finding("", said, "note"),))
    metadata = metadata_of(value)
    namespace = str(metadata.get("namespace") or assumed.namespace)
    name = f"{namespace}/{metadata.get('name')}"
    found = tuple(Finding(fault.path, fault.message) for fault in form_faults(value))
    if found:
        return Judged(name, is_job=True, findings=found)
    identity = {"uid": "0" * 8, **metadata, "namespace": namespace}
    try:
        job = parse_job({**value, "spec": stored_spec(value), "metadata": identity, "status": {}})
        resolved = resolve(job, _settings(assumed), other_run="assumed")
    except (InvalidJobError, InvalidArgumentsError) as error:
        return Judged(name, is_job=True, findings=(told(str(error)),))
    started = launched(resolved)
    made = [{"field": one.what, "value": one.value, "reason": one.reason} for one in adjustments(resolved, started)]
    findings = tuple(_substance(job, resolved, assumed, started))
    return Judged(name, is_job=True, findings=findings, adjustments=tuple(made))


def _substance(job: HarborRLJob, resolved: ResolvedJob, assumed: Assumed, started: Launched) -> Iterator[Finding]:
    observed = _everything_there(resolved)
    verdicts = [verdict for check in CHECKS if (verdict := check(resolved, observed)) is not None]
    fault = started.fault
    for one in verdicts:
        # The launch knows the image's Miles too, so that its words rank above the operator's on the same subject.
        if fault is None or one.reason is not Reason.ARGUMENT_CONFLICT:
            yield told(one.message, one.reason.value)
    if fault is not None and all(one.reason is Reason.ARGUMENT_CONFLICT for one in verdicts):
        # Most faults of a launch are among the checks above: said where those are silent.
        yield fault
    yield from started.remarks
    yield from config_warnings(job.spec)
    yield from second_try_warning(job.spec)
    yield from unreachable_warning(job.spec, resolved.settings)
    outcome = check_data(resolved, assumed.task_root, assumed.data)
    yield from outcome.findings
    facts = Facts.model_validate({key: value for key, value in outcome.facts.items() if key == "evalPrompts"})
    tight = tightness(resolved, facts, "", Surroundings())
    if tight is not None:
        yield Finding(field_of(tight.message), tight.message, "warning", tight.reason.value)


def _settings(assumed: Assumed) -> Settings:
    """What is the installation's to give is not to be seen from here: an image for engine miles, rights for claims."""
    miles = Settings().miles_image or "assumed"
    return Settings(miles_image=miles, gang_scheduler=assumed.gang_scheduler, agent_sandbox=True)


def _everything_there(job: ResolvedJob) -> Observed:
    """A cluster in which whatever the job names exists and can be used by it."""
    claim = {"spec": {"accessModes": ["ReadWriteMany"]}}
    return Observed(
        claims={volume.pvc: claim for volume in job.volumes.values()},
        sandbox_namespace={"metadata": {"labels": {LABEL_SANDBOXES: "true"}}},
    )
