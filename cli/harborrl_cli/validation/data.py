"""I6 and what of I10 the tasks alone tell: the preflight's own check, with a folder here as the tasks volume."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from harborrl_cli.validation.findings import Finding
from harborrl_operator.resolve import MOUNTS, ResolvedJob
from harborrl_trainer import prompts
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import parse_job
from harborrl_trainer.preflight import data as preflight

SHOWN = 20
"""Bad rows that are named one by one."""


class Checked(NamedTuple):
    findings: tuple[Finding, ...] = ()
    facts: Mapping[str, Any] = {}


def check_data(job: ResolvedJob, task_root: Path | None, data: Path | None) -> Checked:
    """Nothing where neither is given. Without `task_root` the rows alone are judged."""
    if task_root is not None:
        return _with_tasks(job, task_root.resolve(), data)
    return Checked(tuple(_rows(data))) if data is not None else Checked()


def _with_tasks(job: ResolvedJob, task_root: Path, data: Path | None) -> Checked:
    document = _moved(job.document(attempt=1), MOUNTS["tasks"], str(task_root))
    if data is not None:
        document["data"] = {"jsonl": str(data.resolve()), "tasks": None}
    try:
        outcome = preflight.check_data(parse_job(json.dumps(document)))
    except ConfigurationError as error:
        return Checked((Finding("spec", str(error)),))
    found = [
        Finding("spec.data", one.message, "refused" if one.severity == "refuse" else "warning", one.reason)
        for one in outcome.findings
    ]
    return Checked(tuple(found), outcome.facts)


def _moved(value: Any, mount: str, root: str) -> Any:
    """Paths below the volume's mount as paths below the folder that stands for it."""
    if isinstance(value, dict):
        return {key: _moved(one, mount, root) for key, one in value.items()}
    if isinstance(value, str) and (value == mount or value.startswith(f"{mount}/")):
        return root + value.removeprefix(mount)
    return value


def _rows(data: Path) -> list[Finding]:
    try:
        found = prompts.read_jsonl(data)
    except ConfigurationError as error:
        return [Finding("spec.data", str(error), reason="DataNotFound")]
    findings = [
        Finding("spec.data", f"{row.where} {row.problem}; correct or remove it") for row in found.bad_rows[:SHOWN]
    ]
    if len(found.bad_rows) > SHOWN:
        findings.append(Finding("spec.data", f"{len(found.bad_rows) - SHOWN} more rows of {data.name} cannot be used"))
    if not found.prompts:
        findings.append(
            Finding("spec.data", f"{data.name} has no row that can be used; `harborrl data prepare` makes some")
        )
    for key, rows in sorted(found.stripped.items()):
        said = f"metadata key {key} of {rows} rows of {data.name} is ignored; rename the column if a task needs it"
        findings.append(Finding("spec.data", said, "warning", "ReservedKeysStripped"))
    return findings
