"""A document -> its findings: form first, then rules, then what the operator would say on a cluster that has it all."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from harborrl_cli.validation import rules, structure
from harborrl_cli.validation.data import check_data
from harborrl_cli.validation.findings import Finding, field_of, told
from harborrl_cli.validation.trainer_side import Launched, config_warnings, launched
from harborrl_operator.arguments import InvalidArgumentsError
from harborrl_operator.capacity import tightness
from harborrl_operator.checks import CHECKS
from harborrl_operator.constants import API_VERSION, KIND, LABEL_SANDBOXES
from harborrl_operator.crd import custom_resource_definition
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
    if not isinstance(value, dict) or value.get("kind") != KIND:
        kind = value.get("kind") if isinstance(value, dict) else None
        said = f"{kind or 'a document without a kind'} is not judged here"
        return Judged(str(kind), is_job=False, findings=(Finding("", said, "note"),))
    given = value.get("metadata")
    metadata: Mapping[str, Any] = given if isinstance(given, dict) else {}
    namespace = str(metadata.get("namespace") or assumed.namespace)
    name = f"{namespace}/{metadata.get('name')}"
    found = list(form_faults(value, metadata))
    if found:
        return Judged(name, is_job=True, findings=tuple(found))
    spec = structure.pruned(value["spec"], _spec_schema())
    try:
        job = parse_job(
            {**value, "spec": spec, "metadata": {"uid": "0" * 8, **metadata, "namespace": namespace}, "status": {}}
        )
        resolved = resolve(job, _settings(assumed), other_run="assumed")
    except (InvalidJobError, InvalidArgumentsError) as error:
        return Judged(name, is_job=True, findings=(told(str(error)),))
    started = launched(resolved)
    findings = tuple(_substance(job, resolved, assumed, started))
    return Judged(name, is_job=True, findings=findings, adjustments=tuple(_adjustments(resolved, started)))


def form_faults(value: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[Finding]:
    """What the API server says, operator or no operator."""
    if value.get("apiVersion") != API_VERSION:
        yield Finding("apiVersion", f"is {value.get('apiVersion')!r}, must be {API_VERSION}")
    yield from rules.name_fault(metadata.get("name"))
    for name in value.keys() - {"apiVersion", "kind", "metadata", "spec", "status"}:
        yield Finding(str(name), "is no field of a HarborRLJob; remove it")
    faults = list(structure.faults(value.get("spec"), _spec_schema(), "spec"))
    yield from faults
    if not faults:
        yield from rules.broken(structure.pruned(value["spec"], _spec_schema()), _messages())


def _adjustments(resolved: ResolvedJob, started: Launched) -> Iterator[Mapping[str, str]]:
    """Of what both set, the trainer's reason is the fuller one."""
    again = {note.what for note in started.adjustments}
    for one in resolved.adjustments:
        if one.field not in again:
            yield {"field": one.field, "value": one.value, "reason": one.reason}
    for note in started.adjustments:
        yield {"field": note.what, "value": note.value, "reason": note.reason}


def _substance(job: HarborRLJob, resolved: ResolvedJob, assumed: Assumed, started: Launched) -> Iterator[Finding]:
    observed = _everything_there(resolved)
    verdicts = [verdict for check in CHECKS if (verdict := check(resolved, observed)) is not None]
    yield from (Finding(field_of(one.message), one.message, reason=one.reason.value) for one in verdicts)
    if started.fault is not None and not verdicts:
        # Most faults of a launch are among the checks above: said where those are silent.
        yield started.fault
    yield from started.remarks
    yield from config_warnings(job.spec)
    outcome = check_data(resolved, assumed.task_root, assumed.data)
    yield from outcome.findings
    facts = Facts.model_validate({key: value for key, value in outcome.facts.items() if key == "evalPrompts"})
    tight = tightness(resolved, facts, "", Surroundings())
    if tight is not None:
        yield Finding(field_of(tight.message), tight.message, "warning", tight.reason.value)


def _settings(assumed: Assumed) -> Settings:
    """An image for engine miles is the installation's to name: whether it does is not to be seen from here."""
    return Settings(miles_image=Settings().miles_image or "assumed", gang_scheduler=assumed.gang_scheduler)


def _everything_there(job: ResolvedJob) -> Observed:
    """A cluster in which whatever the job names exists and can be used by it."""
    claim = {"spec": {"accessModes": ["ReadWriteMany"]}}
    return Observed(
        claims={volume.pvc: claim for volume in job.volumes.values()},
        sandbox_namespace={"metadata": {"labels": {LABEL_SANDBOXES: "true"}}},
    )


@cache
def _spec_schema() -> Mapping[str, Any]:
    (version,) = json.loads(json.dumps(custom_resource_definition()))["spec"]["versions"]
    schema: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


@cache
def _messages() -> Mapping[str, str]:
    """How a message of the CRD's rules begins -> the whole of it."""
    told = [rule["message"] for rule in _spec_schema()["x-kubernetes-validations"]]
    return {begins: next(one for one in told if one.startswith(begins)) for begins in rules.SPEC_RULES}
