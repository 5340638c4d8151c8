"""Commands as a user would type them: printed, run, and named when they fail."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from devcluster.environment import completed

ROOT = Path(__file__).resolve().parents[1]


class CommandError(Exception):
    """A command of the demo ended with an error; its own output says why and has already been shown."""

    def __init__(self, command: list[str], code: int, output: str = "") -> None:
        self.code = code
        self.output = output
        tail = output.strip().splitlines()[-1:] or ["see its output above"]
        super().__init__(f"`{shlex.join(command)}` ended with {code}: {tail[0]}")


def python(*module_and_arguments: str) -> list[str]:
    """The command line that runs one of this checkout's modules with the interpreter of the demo."""
    return [sys.executable, "-m", *module_and_arguments]


def shown(command: list[str]) -> str:
    """The command as a user can type it in the checkout: with the demo's interpreter, programs by their names."""
    program = Path(command[0])
    inside = program.is_absolute() and program.is_relative_to(ROOT)
    return shlex.join([str(program.relative_to(ROOT)) if inside else program.name, *command[1:]])


def _not_installed(command: list[str]) -> CommandError:
    return CommandError(command, 127, f"{command[0]} is not installed; `make up` brings kubectl and helm")


@dataclass(frozen=True)
class Shell:
    """Runs commands in the checkout with one environment; `echo` receives each command line before it runs."""

    env: dict[str, str]

    @classmethod
    def here(cls, **extra: str) -> Shell:
        return cls({**completed(os.environ), **extra})

    def run(self, command: list[str]) -> None:
        """Run with the terminal's own output; raise CommandError when it fails."""
        print(f"\n$ {shown(command)}", flush=True)  # noqa: T201 - the demo speaks to a terminal
        try:
            code = subprocess.run(command, env=self.env, cwd=ROOT, check=False).returncode  # noqa: S603 - a list, no shell
        except FileNotFoundError as error:
            raise _not_installed(command) from error
        if code:
            raise CommandError(command, code)

    def read(self, command: list[str], *, stdin: str | None = None) -> str:
        """Run silently and give standard output; raise CommandError with standard error when it fails."""
        try:
            done = subprocess.run(  # noqa: S603 - a list, no shell
                command, env=self.env, cwd=ROOT, check=False, capture_output=True, text=True, input=stdin
            )
        except FileNotFoundError as error:
            raise _not_installed(command) from error
        if done.returncode:
            raise CommandError(command, done.returncode, done.stderr)
        return done.stdout
