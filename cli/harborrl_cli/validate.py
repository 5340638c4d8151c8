"""`harborrl validate`: what the API server, the operator and the preflight would say, before anything is applied."""

import errno
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from harborrl_cli import options
from harborrl_cli.printing import REFUSED, USAGE, as_json, clean, complain, say

if TYPE_CHECKING:
    from harborrl_cli.validation.findings import Finding
    from harborrl_cli.validation.jobs import Assumed, Judged
    from harborrl_operator.manifests.reading import Document

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
    """Judge HarborRLJob manifests without a cluster, one line a finding: FILE:LINE: field: what is wrong, what to do.

    Exit codes: 0 every job can be admitted as far as is known here (warnings are none), 1 one is refused or there is
    none, 2 a file cannot be read.
    """
    from harborrl_cli.validation.jobs import Assumed

    assumed = Assumed(namespace, gang_scheduler, task_root, data)
    texts = {file: _text(file) for file in files}
    unread = {file: text.reason for file, text in texts.items() if isinstance(text, _Unread)}
    judged = [(file, *one) for file, text in texts.items() if isinstance(text, str) for one in _judged(text, assumed)]
    if json:
        missing = [{"file": file, "message": reason} for file, reason in unread.items()]
        as_json({"documents": [_document(*one) for one in judged], "unreadable": missing})
    else:
        for one in judged:
            _print(*one)
    for file, reason in unread.items():
        complain(f"{file}: {reason}")
    if unread:
        raise typer.Exit(USAGE)
    if not any(one.is_job for _, _, one in judged):
        complain(f"no HarborRLJob in {', '.join(files)}")
        raise typer.Exit(REFUSED)
    if any(one.is_refused for _, _, one in judged):
        raise typer.Exit(REFUSED)


class _Unread(NamedTuple):
    reason: str


def _text(file: str) -> str | _Unread:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return _Unread(f"is not UTF-8 (byte {error.start}); save it as UTF-8")
    except OSError as error:
        advice = {errno.EACCES: "make it readable to you", errno.EISDIR: "name the files in it"}
        return _Unread(f"cannot be read ({error.strerror}); {advice.get(error.errno or 0, 'correct its name')}")


def _judged(text: str, assumed: "Assumed") -> "Iterator[tuple[Document, Judged]]":
    from harborrl_cli.validation.findings import Finding
    from harborrl_cli.validation.jobs import Judged, judge
    from harborrl_operator.manifests.reading import documents

    for document in documents(text):
        if document.faults:
            found = tuple(Finding(path, message, line=line) for path, message, line in document.faults)
            yield document, Judged("", is_job=True, findings=found)
        elif document.value is not None:
            yield document, judge(document.value, assumed)


def _print(file: str, document: "Document", one: "Judged") -> None:
    for found in one.findings:
        mark = "" if found.severity == "refused" else f"{found.severity}: "
        path = f"{found.path}: " if found.path else ""
        say(clean(f"{file}:{_line(document, found)}: {path}{mark}{found.message}"))
    if one.is_job and not one.is_refused:
        said = "can be admitted, as far as can be known without a cluster"
        say(clean(f"{file}:{document.line_of('')}: {one.name} {said}"))


def _line(document: "Document", found: "Finding") -> int:
    return found.line or document.line_of(found.path)


def _document(file: str, document: "Document", one: "Judged") -> dict[str, Any]:
    return {
        "file": file,
        "document": document.number,
        "line": document.line_of(""),
        "job": one.name if one.is_job else None,
        "admitted": one.is_job and not one.is_refused,
        "findings": [
            {
                "path": found.path,
                "line": _line(document, found),
                "severity": found.severity,
                "reason": found.reason or None,
                "message": found.message,
            }
            for found in one.findings
        ],
        "adjustments": list(one.adjustments),
    }
