"""Runs a helper program to its end and turns failure into an error that quotes it."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from devcluster.errors import CommandError


def run(
    argv: Sequence[str | Path],
    *,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
) -> str:
    """Standard output of `argv`. Raises CommandError, with what it wrote to standard error, if it fails."""
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            input=stdin,
            env=env,
            cwd=cwd,
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise CommandError(str(argv[0]), 127, "no such program") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(shlex.join(map(str, argv)), 124, f"no end after {timeout} s") from error
    if done.returncode != 0:
        raise CommandError(shlex.join(map(str, argv)), done.returncode, done.stderr or done.stdout)
    return done.stdout


def succeeds(argv: Sequence[str | Path]) -> bool:
    """Whether `argv` ends with status 0; for questions whose answer may be no."""
    try:
        run(argv)
    except CommandError:
        return False
    return True
