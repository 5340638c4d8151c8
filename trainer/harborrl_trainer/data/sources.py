"""What `--input` names: a file, standard input, a folder of task directories or of data files, or a hub's data set."""

import gzip
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from pydantic import TypeAdapter, ValidationError

from harborrl_trainer.data import hub, splits
from harborrl_trainer.data.causes import Cause
from harborrl_trainer.data.json_input import Numbered, read_json, read_lines
from harborrl_trainer.data.parquet import read_parquet
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import RelativePath, TaskSource
from harborrl_trainer.prompts import task_directories

_HUB_ID = re.compile(r"(hf://datasets/)?[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")

_STDIN = Path("/dev/stdin")


class OptionError(ConfigurationError):
    """An option that the input has no use for: the command line is wrong, not the data."""

    def __init__(self, option: str, said: str) -> None:
        super().__init__(f"{option}: {said}")
        self.option, self.said = option, said


@dataclass(frozen=True)
class Part:
    """One file of the input, or all task directories."""

    name: str
    rows: Callable[[], Iterator[Numbered]]
    file: Path | None = None
    """What the rows come from, where it is one file: it must not be the output as well."""
    titles: Sequence[str] = ()
    """What people call the rows, where that is not their line."""

    def place(self, number: int) -> str:
        """Of row `number`, for a report."""
        return self.titles[number - 1] if self.titles else f"{self.name}:{number}"


@dataclass(frozen=True)
class Input:
    parts: Sequence[Part]
    described: str
    """For the report: what was read, with the revision of a hub's data set."""


@dataclass(frozen=True)
class Selection:
    """Which rows of an input that holds several kinds."""

    split: str = "train"
    config: str | None = None
    revision: str | None = None
    glob: str | None = None
    """Unset: all."""
    instruction_path: str = "instruction.md"

    def refuse_unread(self, *names: str) -> None:
        """Raises OptionError where one of these is set: it would be ignored, and what it was to choose be missed."""
        for name in names:
            if (value := getattr(self, name)) is not None:
                raise OptionError(f"--{name}", f"'{value}' chooses nothing in this input; leave it out")


def open_input(text: str, selection: Selection) -> Input:
    """ConfigurationError when it is nothing that can be read, or needs a package that is not installed."""
    if text == "-":
        selection.refuse_unread("config", "revision", "glob")
        return Input([Part("stdin", lambda: read_lines(sys.stdin.buffer, "standard input"), _STDIN)], "standard input")
    path = Path(text).expanduser()
    if path.is_dir():
        selection.refuse_unread("revision")
        return _folder(path.resolve(), selection)
    selection.refuse_unread("glob")
    if path.exists():
        selection.refuse_unread("config", "revision")
        return Input([_file(path, path.name)], str(path))
    if not _HUB_ID.fullmatch(text) or path.suffix.lower() in splits.SUFFIXES:
        raise ConfigurationError(
            f"{text}: no such file or folder; a data set of the Hugging Face hub is named OWNER/NAME"
        )
    found = hub.download(text.removeprefix("hf://datasets/"), selection.split, selection.config, selection.revision)
    return Input([_file(file, name) for name, file in found.files], f"{text} at revision {found.revision}")


def is_below(path: str) -> bool:
    """Whether a task's file may be named so: by the rule that a job's own data.tasks.instructionPath is held to."""
    try:
        TypeAdapter(RelativePath).validate_python(path)
    except ValidationError:
        return False
    return True


def _folder(root: Path, selection: Selection) -> Input:
    try:
        os.scandir(f"{root}/.").close()  # a glob finds nothing in a folder that it may not list, and says nothing
        os.stat(f"{root}/.")  # noqa: PTH116 - a Path drops the dot, which asks whether the folder may be entered
    except OSError as error:
        raise _closed(root, error) from error
    if tasks := _task_names(root, selection):
        selection.refuse_unread("config")
        source = TaskSource(root=root, instruction_path=selection.instruction_path)
        part = Part(root.name, lambda: _tasks(tasks, source), titles=tasks)
        return Input([part], f"{len(tasks)} task directories of {root}")
    if selection.glob is not None:
        raise ConfigurationError(f"{root}: no task directory matches --glob '{selection.glob}'; correct one of them")
    names, card = _listed(root)
    chosen = splits.files_of(names, card, selection.split, selection.config, str(root))
    return Input([_file(root / name, name) for name in chosen], str(root))


def _task_names(root: Path, selection: Selection) -> list[str]:
    pattern = "*" if selection.glob is None else selection.glob
    source = TaskSource(root=root, glob=pattern, instruction_path=selection.instruction_path)
    found = task_directories(source, setting="--glob")
    return [directory.relative_to(root).as_posix() for directory in found]


def _listed(root: Path) -> tuple[list[str], str]:
    """The names of all files below, and the text of the data set's card; empty where there is none."""
    try:
        names = [path.relative_to(root).as_posix() for path in sorted(root.rglob("*")) if path.is_file()]
        return names, (root / splits.CARD).read_text(errors="replace") if splits.CARD in names else ""
    except OSError as error:
        raise _closed(root, error) from error


def _closed(root: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"{error.filename or root}: cannot be read ({error.strerror}); make it readable or correct --input"
    )


def _tasks(names: Sequence[str], source: TaskSource) -> Iterator[Numbered]:
    for number, name in enumerate(names, 1):
        try:
            text = (source.root / name / source.instruction_path).read_text(encoding="utf-8")
        except FileNotFoundError:
            yield number, {"instance_id": name}
        except (OSError, UnicodeDecodeError):
            yield number, Cause.UNREADABLE
        else:
            yield number, {"prompt": text, "metadata": {"instance_id": name}}


def _file(path: Path, name: str) -> Part:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1:] == [".gz"]
    kind = (suffixes[:-1] if packed else suffixes)[-1:]
    match kind:
        case [".jsonl" | ".ndjson"]:
            return Part(name, lambda: _streamed(path, packed, lambda file: read_lines(file, name)), path)
        case [".json"]:
            return Part(name, lambda: _streamed(path, packed, lambda file: read_json(file, name)), path)
        case [".parquet"] if not packed:
            return Part(name, lambda: read_parquet(path), path)
        case _:
            raise ConfigurationError(
                f"{path}: cannot tell its format; name it .jsonl, .json (both also with .gz) or .parquet"
            )


def _unpacked(raw: IO[bytes], *, packed: bool) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(raw)) if packed else raw


def _streamed(path: Path, packed: bool, read: Callable[[IO[bytes]], Iterator[Numbered]]) -> Iterator[Numbered]:
    try:
        with path.open("rb") as raw, _unpacked(raw, packed=packed) as file:
            yield from read(file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ConfigurationError(f"{path}: the gzip stream is damaged ({error}); fetch the file again") from error
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror or error}); correct --input") from error
