"""`harborrl argv`: the command line that a job starts Miles with, before a GPU is spent."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from harborrl_cli.printing import USAGE, complain, one_line_errors, say


def argv(
    file: Annotated[Path | None, typer.Option(help="A HarborRLJob manifest, or a job document.")] = None,
    preset: Annotated[str | None, typer.Option(help="A preset in its documented shape instead.")] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="One variable or flag a line instead of JSON, to lay beside a launcher.")
    ] = False,
) -> None:
    """Print `{"argv": [...], "env": {...}}` as JSON; adjustments and warnings go to standard error, one a line.

    With `--lines` two launches are compared by `diff`: a job with its preset, or with a launcher of your own. What
    `python -m harborrl_trainer argv` prints, with the exit codes of this command line.
    """
    from harborrl_trainer.launch import argv_command
    from harborrl_trainer.launch.presets import presets

    if (file is None) == (preset is None):
        complain("argv: give exactly one of --file and --preset")
        raise typer.Exit(USAGE)
    if preset is not None and preset not in presets():
        complain(f"--preset: there is no '{preset}'; choose one of {', '.join(presets())}")
        raise typer.Exit(USAGE)
    with one_line_errors():
        made, said = argv_command.argv(preset, file, lines=lines)
    say(made)
    sys.stdout.flush()
    for line in said:
        complain(line)
