"""Standard output to its last byte: a command whose results are not whole says so, and ends with a code of its own."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import override

from harborrl_cli.printing import OK, UNWRITTEN, complain


class UnwrittenError(OSError):
    """Standard output takes no more, as on a full disk."""


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # Whoever read us has seen enough, `head` say.
        sys.stdout = None  # the interpreter would flush into the closed pipe at its end
        raise SystemExit(OK) from None
    except OSError as error:
        sys.stdout = None
        raise UnwrittenError(error.errno, error.strerror or str(error)) from error


class _Output(io.TextIOWrapper):
    """Every writer's errors, those of the help and of the tables too; no character is one."""

    @override
    def write(self, text: str, /) -> int:
        with _writing():
            return super().write(text)

    @override
    def flush(self) -> None:
        with _writing():
            super().flush()


@contextmanager
def whole_output() -> Iterator[None]:
    """Around a whole command."""
    given = sys.stdout
    sys.stdout = _Output(
        given.buffer, encoding=given.encoding, errors="backslashreplace", line_buffering=given.isatty()
    )
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except UnwrittenError as error:
        said = f"standard output: cannot be written ({error.strerror}), what is there is not whole"
        complain(f"{said}; make room where it goes")
        raise SystemExit(UNWRITTEN) from None
