"""I6: prompts are there and not empty, and each names a task that can be run and judged."""

import tomllib
from collections.abc import Sequence
from pathlib import Path

from harborrl_trainer import prompts as sources
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import Data, JobDocument
from harborrl_trainer.preflight.findings import Finding, Outcome, refuse, some, warn
from harborrl_trainer.preflight.sandboxes import check_sandboxes
from harborrl_trainer.prompt_rows import BadRow
from harborrl_trainer.prompts import PromptSet

INSTRUCTION = "instruction.md"
VERIFIER = Path("tests") / "test.sh"


def check_data(job: JobDocument) -> Outcome:
    """Training and evaluation rows. Facts: `prompts` and, with an evaluation set, `evalPrompts`."""
    root = tasks_root(job)
    listing = _listing_problem(root)
    if listing:
        message = f"{root} {listing}. Put Harbor task directories on the tasks volume or correct data.tasks.root."
        return Outcome([refuse("I6", "NoTasks", message)])
    training, tasks = _check_source(job.data, root)
    findings, facts = [*training.findings], dict(training.facts)
    if job.eval is not None:
        held_out, more = _check_source(Data(jsonl=job.eval.jsonl), root)
        findings += held_out.findings
        facts["evalPrompts"] = held_out.facts.get("prompts", 0)
        tasks |= more
    made = check_sandboxes(job, [root / name for name in sorted(tasks)])
    return Outcome([*findings, *made.findings], {**facts, **made.facts})


def tasks_root(job: JobDocument) -> Path:
    return job.data.tasks.root if job.data.tasks else job.storage.tasks


def _listing_problem(root: Path) -> str:
    try:
        return "" if any(path.is_dir() for path in root.iterdir()) else "holds no directory"
    except OSError as error:
        return f"cannot be listed ({error.strerror})"


def _check_source(data: Data, root: Path) -> tuple[Outcome, set[str]]:
    """What is said of it, and the names of its task directories that are there."""
    source = data.jsonl.name if data.jsonl else "data.tasks"
    try:
        found = sources.read_prompts(data)
    except ConfigurationError as error:
        return Outcome([refuse("I6", "DataNotFound", str(error))]), set()
    if not found.prompts and not found.bad_rows:
        return Outcome([_nothing_selected(data)]), set()
    ids = {prompt.instance_id for prompt in found.prompts}
    present = {id_ for id_ in ids if (root / id_).is_dir()}
    findings = [
        *_bad_rows(found.bad_rows, source),
        *_reserved(found, source),
        *_tasks(ids, present, root, source),
    ]
    return Outcome(findings, {"prompts": len(found.prompts)}), present


def _nothing_selected(data: Data) -> Finding:
    if data.tasks is None:
        return refuse("I6", "NoTasks", f"{data.jsonl} has no row. Write one row a task or point data.jsonl elsewhere.")
    return refuse(
        "I6",
        "NoTasks",
        f"No task directory matches '{data.tasks.glob}' under {data.tasks.root}. Correct data.tasks.glob or add tasks.",
    )


def _bad_rows(rows: Sequence[BadRow], source: str) -> list[Finding]:
    empty = [row.where for row in rows if row.empty_prompt]
    broken = [f"{row.where} {row.problem}" for row in rows if not row.empty_prompt]
    findings = []
    if empty:
        message = f"{len(empty)} prompts of {source} are empty: {some(empty)}. Give each a text or remove the row."
        findings.append(refuse("I6", "PromptEmpty", message))
    if broken:
        message = f"{len(broken)} rows of {source} cannot be used: {some(broken, 3)}. Correct or remove them."
        findings.append(refuse("I6", "DataInvalid", message))
    return findings


def _reserved(found: PromptSet, source: str) -> list[Finding]:
    if not found.stripped:
        return []
    keys = some([f"{key} ({rows})" for key, rows in sorted(found.stripped.items())])
    message = f"Reserved metadata keys of {source} are ignored: {keys}. Rename those columns if a task needs them."
    return [warn("I6", "ReservedKeysStripped", message)]


def _tasks(ids: set[str], present: set[str], root: Path, source: str) -> list[Finding]:
    missing = sorted(ids - present)
    invalid = [f"{id_} ({problem})" for id_ in sorted(present) if (problem := _task_problem(root / id_))]
    unjudged = sorted(id_ for id_ in present if not (root / id_ / VERIFIER).is_file())
    findings = []
    if missing:
        message = (
            f"{len(missing)} of {len(ids)} prompts name no task directory under {root}: {some(missing)}. "
            f"Add the directories or correct metadata.instance_id in {source}."
        )
        findings.append(refuse("I6", "TaskNotFound", message))
    if invalid:
        message = f"{len(invalid)} tasks under {root} are not whole: {some(invalid, 3)}. Complete or remove them."
        findings.append(refuse("I6", "TaskInvalid", message))
    if unjudged:
        message = f"{len(unjudged)} tasks under {root} have no verifier: {some(unjudged)}. Add tests/test.sh to each."
        findings.append(refuse("I6", "TaskWithoutVerifier", message))
    return findings


def _task_problem(directory: Path) -> str:
    if not (directory / INSTRUCTION).is_file():
        return f"no {INSTRUCTION}"
    try:
        tomllib.loads((directory / sources.TASK_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return f"no {sources.TASK_FILE}"
    except (OSError, ValueError):
        return f"{sources.TASK_FILE} cannot be read as TOML"
    return ""
