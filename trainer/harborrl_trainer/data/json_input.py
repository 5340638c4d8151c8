"""Rows of JSONL and JSON as streams of bounded memory: one line, or one element of an array, is held at a time."""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from io import TextIOWrapper
from typing import IO, Any, NoReturn

import orjson

from harborrl_trainer.data.causes import Cause
from harborrl_trainer.errors import ConfigurationError

LONGEST = 64 * 1024 * 1024
"""Bytes of a line, characters of an array's element: beyond it something is not what it is taken for."""
_CHUNK = 1024 * 1024
_OTHER_FORMATS = {
    b"\x1f\x8b": "gzip: add .gz to its name",
    b"PAR1": "Parquet: name it .parquet",
    b"\xff\xfe": "UTF-16: convert it to UTF-8",
    b"\xfe\xff": "UTF-16: convert it to UTF-8",
    b"\x28\xb5\x2f\xfd": "Zstandard: unpack it",
    b"\xfd7zXZ": "xz: unpack it",
    b"BZh": "bzip2: unpack it",
    b"PK\x03\x04": "zip: unpack it",
}
"""How a file begins that is no JSON, whatever its name says -> what it is, and what to do. No JSON begins so."""
_TORN = object()

type Numbered = tuple[int, Any]
"""Line or position from 1, and the value or the Cause why there is none."""


def read_lines(file: IO[bytes], name: str = "input", longest: int = LONGEST) -> Iterator[Numbered]:
    """One value a line; blank lines are no rows, but they count as lines.

    Raises ConfigurationError where the file is in a format of another kind.
    """
    number = 0
    while line := file.readline(longest + 1):
        number += 1
        if number == 1:
            _refuse_other_format(line, name)
            line = line.removeprefix(BOM_UTF8)
        if len(line) > longest:
            while line and not line.endswith(b"\n"):
                line = file.readline(longest + 1)
            yield number, Cause.TOO_LONG
            continue
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            if line.isspace() or not line:
                continue
            value = Cause.NOT_JSON
        yield number, value


def _refuse_other_format(head: bytes, name: str) -> None:
    for begins, what in _OTHER_FORMATS.items():
        if head.startswith(begins):
            raise ConfigurationError(f"{name}: is no JSON but {what}")


def read_json(file: IO[bytes], name: str, longest: int = LONGEST) -> Iterator[Numbered]:
    """The elements of one array, or objects one after the other.

    Raises ConfigurationError where it stops being JSON: what comes after cannot be told apart from what was broken.
    """
    text = TextIOWrapper(file, encoding="utf-8-sig")
    try:
        yield from enumerate(_Values(text, name, longest), 1)
    finally:
        text.detach()  # the file is its opener's to close


class _Values:
    """Decodes value after value from a buffer that grows only while a value is not whole."""

    _DECODER = json.JSONDecoder()
    _BLANK = re.compile(r"[ \t\n\r]*")

    def __init__(self, file: TextIOWrapper, name: str, longest: int) -> None:
        self._file, self._name, self._longest = file, name, longest
        self._text, self._at = "", 0

    def __iter__(self) -> Iterator[Any]:
        number = 1
        array = self._take("[")
        while not self._take("]") if array else self._peek():
            yield self._value(number)
            number += 1
            if array and not self._take(","):
                if not self._take("]"):
                    self._fail(number)
                break
        if self._peek():
            self._fail(number)

    def _peek(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            if blank := self._BLANK.match(self._text, self._at):
                self._at = blank.end()
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def _take(self, character: str) -> bool:
        if self._peek() != character:
            return False
        self._at += 1
        return True

    def _value(self, number: int) -> Any:
        self._peek()
        while True:
            value, end = self._decoded()
            # A number may go on in what has not been read yet.
            if end < len(self._text) or not self._more():
                break
        if value is _TORN:
            self._fail(number)
        self._at = end
        return value

    def _decoded(self) -> tuple[Any, int]:
        try:
            return self._DECODER.raw_decode(self._text, self._at)
        except (ValueError, RecursionError):
            return _TORN, len(self._text)

    def _more(self) -> bool:
        held = self._text[self._at :]
        if len(held) > self._longest:
            return False
        try:
            # Doubled, so that a long value is not decoded again and again.
            read = self._file.read(max(len(held), _CHUNK))
        except UnicodeDecodeError as error:
            _refuse_other_format(error.object, self._name)
            raise ConfigurationError(f"{self._name}: is not UTF-8 ({error.reason}); convert it first") from error
        self._text, self._at = held + read, 0
        return bool(read)

    def _fail(self, number: int) -> NoReturn:
        raise ConfigurationError(
            f"{self._name}: row {number} is not JSON, or is larger than {self._longest // 1024**2} MiB; correct the"
            " file, or give it one object a line in a .jsonl"
        )
