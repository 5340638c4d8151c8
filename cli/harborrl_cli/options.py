"""What an option's text may be, judged before a command does anything: one line, and the exit code of a wrong one.

Each function gives the `parser=` of one option. An empty text is what an unset variable of a shell gives, and as a path
it would be the current directory.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import typer

from harborrl_cli.printing import USAGE, complain


def refuse(option: str, said: str) -> NoReturn:
    complain(f"{option}: {said}")
    raise typer.Exit(USAGE)


def text(option: str) -> Callable[[str], str]:
    def parsed(given: str) -> str:
        if not given.strip():
            refuse(option, "is empty, as an unset variable of a shell is; give a value")
        return given

    return parsed


def path(option: str) -> Callable[[str], Path]:
    return lambda given: Path(text(option)(given))


def folder(option: str) -> Callable[[str], Path]:
    """One that is there and may be listed."""
    return lambda given: _readable(option, path(option)(given), folder=True)


def file(option: str) -> Callable[[str], Path]:
    """One that is there and may be read; a pipe is as good."""
    return lambda given: _readable(option, path(option)(given), folder=False)


def jsonl(option: str) -> Callable[[str], Path]:
    def parsed(given: str) -> Path:
        found = path(option)(given)
        if found.suffix != ".jsonl":
            refuse(option, f"{found} must end in .jsonl, the suffix by which Miles chooses its reader")
        return found

    return parsed


def below(option: str, what: str) -> Callable[[str], str]:
    """A relative path or pattern that does not lead out of `what`, and is not `what` itself."""

    def parsed(given: str) -> str:
        from harborrl_trainer.data.sources import is_below

        if not is_below(text(option)(given)):
            refuse(option, f"'{given}' is not a relative path below the {what}; name one that is")
        return given

    return parsed


def _readable(option: str, given: Path, *, folder: bool) -> Path:
    try:
        is_folder = given.is_dir() if given.exists() else None
        readable = os.access(given, os.R_OK | os.X_OK if folder else os.R_OK, effective_ids=True)
    except OSError as error:
        refuse(option, f"{given} cannot be read ({error.strerror}); correct it")
    if is_folder is None:
        refuse(option, f"{given} does not exist; correct it")
    if is_folder is not folder:
        refuse(option, f"{given} is {'a' if is_folder else 'no'} folder; correct it")
    if not readable:
        refuse(option, f"{given} may not be read; make it readable or correct it")
    return given
