"""Reading a trial's files, which a policy may have written: no link is followed, nothing blocks or is too large."""

import contextlib
import json
import os
import re
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRIAL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")

JSON_LIMIT = 8 * 1024 * 1024
"""Bytes of a trajectory. Parsing this many holds the interpreter for about a tenth of a second."""

TEXT_LIMIT = 128 * 1024
"""Bytes of an output that the page shows; of a longer one its beginning and its end."""

TERMINAL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\r(?=\n)")
"""Colours and titles for a terminal, and the carriage returns of one."""


class UnreadableError(Exception):
    """The file is there and cannot be shown; the message says why."""


@dataclass(frozen=True)
class Text:
    text: str
    omitted: int = 0
    """Bytes left out of its middle."""


class TrialFiles:
    """One trial's directory below `trials_dir`."""

    def __init__(self, trials_dir: Path, name: str) -> None:
        """Raises FileNotFoundError when there is no such directory, or the name is none."""
        if not TRIAL_NAME.fullmatch(name) or not stat.S_ISDIR((trials_dir / name).lstat().st_mode):
            raise FileNotFoundError(name)
        self.directory = trials_dir / name

    def text(self, *path: str, limit: int = TEXT_LIMIT) -> Text | None:
        """Readable text of a file, None when there is none; raises `UnreadableError`."""
        with self._opened(path) as file:
            if file is None:
                return None
            size = os.fstat(file).st_size
            if size <= limit:
                return Text(readable(os.pread(file, limit, 0)))
            head, tail = os.pread(file, limit // 4, 0), os.pread(file, limit * 3 // 4, size - limit * 3 // 4)
        omitted = size - len(head) - len(tail)
        return Text(f"{readable(head)}\n[... {omitted} bytes left out ...]\n{readable(tail)}", omitted)

    def json(self, *path: str) -> Any:
        """A JSON document, None when there is none; raises `UnreadableError`."""
        with self._opened(path) as file:
            if file is None:
                return None
            if os.fstat(file).st_size > JSON_LIMIT:
                raise UnreadableError(f"{path[-1]} is larger than {JSON_LIMIT >> 20} MiB; read it on the trials volume")
            content = os.pread(file, JSON_LIMIT, 0)
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise UnreadableError(f"{path[-1]} is no JSON: {error}") from error

    @contextlib.contextmanager
    def _opened(self, path: tuple[str, ...]) -> Iterator[int | None]:
        """Each part is opened below the last one, so that no link anywhere leads out of the directory."""
        with contextlib.ExitStack() as opened:
            try:
                at = opened_here(opened, self.directory, None, os.O_DIRECTORY)
                for part in path[:-1]:
                    at = opened_here(opened, part, at, os.O_DIRECTORY)
                file = opened_here(opened, path[-1], at, os.O_NONBLOCK)
            except FileNotFoundError:
                yield None
                return
            except OSError as error:
                raise UnreadableError(f"{'/'.join(path)} cannot be read: {error.strerror}") from error
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise UnreadableError(f"{'/'.join(path)} is no regular file")
            yield file


def opened_here(opened: contextlib.ExitStack, name: str | Path, at: int | None, flags: int) -> int:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=at)
    opened.callback(os.close, descriptor)
    return descriptor


def readable(content: bytes) -> str:
    """Text as a page can show it: without what steers a terminal, and with other invisible characters made visible."""
    return visible(content.decode(errors="replace"))


def visible(text: str) -> str:
    """A control character becomes its picture; one that turns the direction of writing becomes its code."""
    text = TERMINAL.sub("", text)
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(_picture(character) for character in text)


def _picture(character: str) -> str:
    if character in "\n\t" or character.isprintable():
        return character
    if character < " ":
        return chr(0x2400 + ord(character))
    if unicodedata.category(character) in {"Cc", "Cf", "Cs"}:
        return f"⟨U+{ord(character):04X}⟩"
    return character
