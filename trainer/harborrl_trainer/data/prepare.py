"""From an input to a file that both engines read, in one pass, and a report of what became of every row."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from harborrl_trainer.data import output
from harborrl_trainer.data.causes import Cause
from harborrl_trainer.data.json_input import LONGEST
from harborrl_trainer.data.rows import Converter
from harborrl_trainer.data.sources import Input
from harborrl_trainer.errors import ConfigurationError, StorageError
from harborrl_trainer.prompts import TASK_FILE, is_task

SHOWN = 10
"""Places that a report names for each cause."""


@dataclass
class Report:
    """Rows by what became of them. `read` = `written` + all dropped."""

    read: int = 0
    written: int = 0
    kept: int = 0
    """Rows that the file had before, with --append."""
    stopped_at_limit: bool = False
    dropped: Counter[Cause] = field(default_factory=Counter)
    where: dict[Cause, list[str]] = field(default_factory=dict)
    """The first places of each cause, as `file:line` or as a task directory's name."""
    shapes: Counter[str] = field(default_factory=Counter)
    stripped: Counter[str] = field(default_factory=Counter)
    """Reserved key -> rows that carried it."""
    binary: Counter[str] = field(default_factory=Counter)
    """Column of bytes that are no text -> rows that it was left out of."""

    def drop(self, cause: Cause, place: str) -> None:
        self.dropped[cause] += 1
        if self.dropped[cause] <= SHOWN:
            self.where.setdefault(cause, []).append(place)


@dataclass(frozen=True)
class Order:
    """What is asked for beside the input."""

    limit: int | None = None
    """Rows to write at most."""
    append: bool = False
    strict: bool = False
    """Write nothing when a row has to be dropped, other than one that the output has already."""
    dry_run: bool = False
    task_root: Path | None = None
    instruction_path: str = "instruction.md"


class NothingWrittenError(ConfigurationError):
    """The file is as it was; the report says why."""

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report


class _NothingNewError(Exception):
    """What would take the file's place is the file itself, which is left alone."""


def prepare(source: Input, path: Path, converter: Converter, order: Order) -> Report:
    """Write `path` from `source`.

    Raises NothingWrittenError when no row is left (or, being strict, not every one), StorageError when the volume does
    not take it; `path` is as it was then, and where there is nothing to append.
    """
    path = output.checked(path)
    _refuse_to_replace(source, path)
    report = Report(stripped=converter.stripped)
    tasks = None if order.task_root is None else _task_names(order.task_root, order.instruction_path)
    try:
        with suppress(_NothingNewError), _writer(path, dry_run=order.dry_run) as write:
            before = frozenset(_carry_over(path, write, report) if order.append else ())
            gate = _Gate(set(before), before, tasks)
            _write_rows(source, write, converter, gate, report, limit=order.limit)
            _judge(report, order)
            if not report.written:
                raise _NothingNewError
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written ({error.strerror or error}); nothing was changed, make room or choose another"
            " --output"
        ) from error
    return report


def _refuse_to_replace(source: Input, path: Path) -> None:
    """Rows that are dropped would be lost for good; links of either kind lead to the same file."""
    for part in source.parts:
        with suppress(OSError):
            if part.file is not None and part.file.samefile(path):
                raise ConfigurationError(
                    f"{path}: is the input as well ({part.name}), and what is dropped would be lost; choose"
                    " another --output"
                )


@dataclass(frozen=True)
class _Gate:
    """Ids that may pass. Memory grows with them: about 93 bytes an id of 20 characters (benchmarks/data_prepare.py)."""

    seen: set[str]
    before: frozenset[str]
    tasks: frozenset[str] | None

    def objection(self, instance_id: str) -> Cause | None:
        if self.tasks is not None and instance_id not in self.tasks:
            return Cause.NO_TASK
        if instance_id in self.seen:
            return Cause.IN_OUTPUT if instance_id in self.before else Cause.DUPLICATE
        self.seen.add(instance_id)
        return None


def _write_rows(
    source: Input,
    write: Callable[[bytes], object],
    converter: Converter,
    gate: _Gate,
    report: Report,
    *,
    limit: int | None,
) -> None:
    convert, dumps = converter.convert, orjson.dumps
    for part in source.parts:
        for number, value in part.rows():
            if report.written == limit:
                report.stopped_at_limit = True
                return
            report.read += 1
            row = value if type(value) is Cause else convert(value)
            if isinstance(row, Cause):
                report.drop(row, part.place(number))
                continue
            try:
                line = dumps(row.document, _json_form, orjson.OPT_APPEND_NEWLINE)
            except orjson.JSONEncodeError:
                found = _without_binary(row.document, report)
                if found is None:
                    report.drop(Cause.NO_JSON_FORM, part.place(number))
                    continue
                line = found
            objection = gate.objection(row.instance_id)
            if objection is not None:
                report.drop(objection, part.place(number))
                continue
            write(line)
            report.written += 1
            report.shapes[row.shape] += 1


def _judge(report: Report, order: Order) -> None:
    already = report.dropped[Cause.IN_OUTPUT]
    lost = report.dropped.total() - already
    if order.strict and lost:
        raise NothingWrittenError(
            f"{lost} of {report.read} rows would be dropped; correct them, or leave out --strict", report
        )
    if not report.written and not already:
        what = "there is no row" if not report.read else f"every one of {report.read} rows was dropped"
        raise NothingWrittenError(f"{what}; nothing was written", report)


@contextmanager
def _writer(path: Path, *, dry_run: bool) -> Iterator[Callable[[bytes], object]]:
    if dry_run:
        yield len
        return
    with output.replacing(path) as file:
        yield file.write


def _carry_over(path: Path, write: Callable[[bytes], object], report: Report) -> Iterator[str]:
    """Copies the lines that are there, byte for byte, and yields their ids.

    A line that no engine reads is refused rather than kept or lost.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        number = 0
        while line := file.readline(LONGEST + 1):
            number += 1
            if line.isspace():
                continue
            write(line if line.endswith(b"\n") else line + b"\n")
            report.kept += 1
            yield _id_of(line, f"{path.name}:{number}")


def _id_of(line: bytes, where: str) -> str:
    try:
        instance_id = orjson.loads(line)["metadata"]["instance_id"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        instance_id = None
    if not isinstance(instance_id, str):
        raise ConfigurationError(
            f"{where}: is not a row with metadata.instance_id, so --append changed nothing; correct the line, or write"
            " the file anew without --append"
        )
    return instance_id


def _task_names(root: Path, instruction_path: str) -> frozenset[str]:
    try:
        children = [path for path in root.iterdir() if path.is_dir()]
    except OSError as error:
        raise ConfigurationError(f"{root}: cannot be listed ({error.strerror}); correct --task-root") from error
    found = frozenset(path.name for path in children if is_task(path, instruction_path))
    if not found:
        raise ConfigurationError(f"{root}: holds no task directory (with a {TASK_FILE}); correct --task-root")
    return found


def _without_binary(document: dict[str, Any], report: Report) -> bytes | None:
    """The line without columns of bytes that are no text: Terminal-Bench sets carry whole task archives.

    None where that does not help.
    """
    metadata = document["metadata"]
    binary = [key for key, value in metadata.items() if isinstance(value, bytes) and not _is_text(value)]
    kept = {key: value for key, value in metadata.items() if key not in binary}
    try:
        line = orjson.dumps({**document, "metadata": kept}, _json_form, orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        return None
    report.binary.update(binary)
    return line


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _json_form(value: Any) -> Any:
    """What orjson has no form for: text in bytes, exact numbers and durations as text; the rest is an error."""
    if isinstance(value, bytes):
        return value.decode()
    if type(value).__name__ in ("Decimal", "timedelta"):
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")
