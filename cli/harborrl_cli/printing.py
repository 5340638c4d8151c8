"""What commands share: results on standard output, one line an error on standard error, exit codes."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

OK = 0
REFUSED = 1
USAGE = 2
"""Click's own code for a wrong command line."""
UNWRITTEN = 74
"""Of sysexits.h: an error of input or output. The results are not whole, whatever they say."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean(text: object) -> str:
    """One line without control characters: what comes from a file must not speak to the terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def complain(text: str) -> None:
    sys.stderr.write(f"{clean(text)}\n")


def as_json(document: Any) -> None:
    say(json.dumps(document, indent=2, allow_nan=False))


@contextmanager
def one_line_errors() -> Iterator[None]:
    """What is the user's to mend ends the command with its sentence and REFUSED; a fault of ours keeps its trace."""
    from harborrl_trainer.errors import TrainerError

    try:
        yield
    except TrainerError as error:
        complain(str(error))
        raise typer.Exit(REFUSED) from None


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest cell; the first two are names, the others numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for at, heading in enumerate(headings):
        made.add_column(heading, justify="left" if at < 2 else "right", no_wrap=True)
    for row in rows:
        made.add_row(*(Text(clean(cell)) for cell in row))
    # As wide as it has to be where nobody looks: a log or a pipe is not folded.
    width = None if sys.stdout.isatty() else 10_000
    Console(file=sys.stdout, width=width, highlight=False).print(made)


@contextmanager
def reporting(what_is_done: str) -> Iterator[None]:
    """Around what is said at the end. A full disk behind standard output is neither a verdict nor a fault of ours."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        complain(f"standard output: cannot be written ({error.strerror}); {what_is_done}")
        sys.stdout = None  # the interpreter would flush it once more at its end
        raise typer.Exit(UNWRITTEN) from None
