"""`harborrl validate`: what the API server, the operator and the preflight would say, before anything is applied."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harborrl_cli import options
from harborrl_cli.printing import REFUSED, USAGE, as_json, clean, complain, say

if TYPE_CHECKING:
    from harborrl_cli.validation.findings import Finding
    from harborrl_cli.validation.jobs import Assumed, Judged

Files = Annotated[
    list[str], typer.Argument(metavar="FILE…", help="Manifests; - is standard input.", show_default=False)
]
TaskRoot = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        parser=options.folder("--task-root"),
        help="Folder that stands for the tasks volume: data and tasks are checked too.",
    ),
]
Data = Annotated[
    Path | None, typer.Option(metavar="FILE", parser=options.file("--data"), help="File that stands for data.jsonl.")
]
Namespace = Annotated[str, typer.Option(help="Namespace of manifests that name none.")]
GangScheduler = Annotated[str, typer.Option(help="Batch scheduler that the chart's defaults name, if any.")]


def validate(  # noqa: PLR0917 - the options of a command line are named
    files: Files,
    task_root: TaskRoot = None,
    data: Data = None,
    namespace: Namespace = "default",
    gang_scheduler: GangScheduler = "",
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Judge HarborRLJob manifests without a cluster, one line a finding.

    Exit codes: 0 every job can be admitted as far as is known here (warnings are none), 1 one is refused or there is
    none, 2 a file cannot be read.
    """
    from harborrl_cli.validation.jobs import Assumed

    assumed = Assumed(namespace, gang_scheduler, task_root, data)
    texts = {file: _text(file) for file in files}
    judged = [(file, *one) for file, text in texts.items() if text is not None for one in _judged(text, assumed)]
    if json:
        as_json({"documents": [_document(*one) for one in judged]})
    else:
        for one in judged:
            _print(*one)
    if None in texts.values():
        raise typer.Exit(USAGE)
    if not any(one.is_job for _, _, one in judged):
        complain("no HarborRLJob in what was given")
        raise typer.Exit(REFUSED)
    if any(one.is_refused for _, _, one in judged):
        raise typer.Exit(REFUSED)


def _text(file: str) -> str | None:
    """None, and a line, where it cannot be read."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        complain(f"{file}: cannot be read ({reason}); correct its name")
        return None


def _judged(text: str, assumed: "Assumed") -> "Iterator[tuple[int, Judged]]":
    from harborrl_cli.validation.findings import Finding
    from harborrl_cli.validation.jobs import Judged, judge
    from harborrl_operator.manifests.reading import documents

    for document in documents(text):
        if document.faults:
            found = tuple(Finding(*fault) for fault in document.faults)
            yield document.number, Judged("", is_job=True, findings=found)
        elif document.value is not None:
            yield document.number, judge(document.value, assumed)


def _print(file: str, number: int, one: "Judged") -> None:
    for finding in one.findings:
        say(_line(file, number, finding))
    if one.is_job and not one.is_refused:
        say(f"{clean(file)}:{number}: {clean(one.name)} can be admitted, as far as can be known without a cluster")


def _line(file: str, number: int, finding: "Finding") -> str:
    mark = "" if finding.severity == "refused" else f"{finding.severity}: "
    path = f"{finding.path}: " if finding.path else ""
    return clean(f"{file}:{number}: {path}{mark}{finding.message}")


def _document(file: str, number: int, one: "Judged") -> dict[str, Any]:
    return {
        "file": file,
        "document": number,
        "job": one.name if one.is_job else None,
        "admitted": one.is_job and not one.is_refused,
        "findings": [
            {"path": found.path, "severity": found.severity, "reason": found.reason or None, "message": found.message}
            for found in one.findings
        ],
        "adjustments": list(one.adjustments),
    }
