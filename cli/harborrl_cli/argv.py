"""`harborrl argv`: the command line that a job starts Miles with, before a GPU is spent."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from harborrl_cli.printing import USAGE, complain, one_line_errors, say


def argv(
    file: Annotated[Path | None, typer.Option(help="A HarborRLJob manifest, or a job document.")] = None,
    preset: Annotated[str | None, typer.Option(help="A preset in its documented shape instead.")] = None,
) -> None:
    """Print `{"argv": [...], "env": {...}}` as JSON; adjustments and warnings go to standard error, one a line.

    The same as `python -m harborrl_trainer argv`.
    """
    from harborrl_trainer.launch import argv_command

    if (file is None) == (preset is None):
        complain("argv: give exactly one of --file and --preset")
        raise typer.Exit(USAGE)
    with one_line_errors():
        made, said = argv_command.argv(preset, file)
    say(made)
    sys.stdout.flush()
    for line in said:
        complain(line)
