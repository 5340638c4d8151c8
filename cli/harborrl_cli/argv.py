"""`harborrl argv`: the command line that a job starts Miles with, before a GPU is spent."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from harborrl_cli.printing import REFUSED, USAGE, complain, one_line_errors


def argv(
    file: Annotated[Path | None, typer.Option(help="A HarborRLJob manifest, or a job document.")] = None,
    preset: Annotated[str | None, typer.Option(help="A preset in its documented shape instead.")] = None,
) -> None:
    """Print `{"argv": [...], "env": {...}}` as JSON; adjustments and warnings go to standard error, one a line.

    The same as `python -m harborrl_trainer argv`.
    """
    from harborrl_cli.validation.trainer_side import ARGV, is_there

    if (file is None) == (preset is None):
        complain("argv: give exactly one of --file and --preset")
        raise typer.Exit(USAGE)
    if not is_there(ARGV):
        complain("argv: this version has no launch for engine miles; use `harborrl validate`")
        raise typer.Exit(REFUSED)
    command: Any = import_module(ARGV)
    with one_line_errors():
        raise typer.Exit(command.argv(preset, file, sys.stdout, sys.stderr))
