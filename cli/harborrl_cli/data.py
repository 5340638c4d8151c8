"""`harborrl data`: from what people have to what the engines read."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from harborrl_cli import options
from harborrl_cli.printing import REFUSED, as_json, complain, one_line_errors, reporting, say

if TYPE_CHECKING:
    from harborrl_trainer.data.prepare import Order, Report
    from harborrl_trainer.data.rows import Converter
    from harborrl_trainer.data.sources import Input, Selection

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Training and evaluation sets.")


@app.callback()
def group() -> None:
    """A group even while it has one command."""


Source = Annotated[
    str,
    typer.Option(
        "--input",
        metavar="X",
        parser=options.text("--input"),
        help="Folder of Harbor task directories; .jsonl, .json (both also .gz) or .parquet file; folder of such files;"
        " OWNER/NAME of a Hugging Face data set; - for JSONL on standard input.",
    ),
]
Output = Annotated[
    Path,
    typer.Option(
        "--output",
        metavar="Y.jsonl",
        parser=options.jsonl("--output"),
        help="File to write; replaced whole or not at all.",
    ),
]
Split = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        parser=options.text("--split"),
        help="Split to read of a folder or data set; each row is marked with it.",
    ),
]
Config = Annotated[
    str | None,
    typer.Option(metavar="NAME", parser=options.text("--config"), help="Config of a data set that has several."),
]
Revision = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", parser=options.text("--revision"), help="Branch, tag or commit of a Hugging Face data set."
    ),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Write at most this many rows.")]
AgentName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        parser=options.text("--agent-name"),
        help="Set metadata.agent_name. Unset: a row's own stays.",
    ),
]
PromptKey = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        parser=options.text("--prompt-key"),
        help="Column that is the prompt, and no other. Unset: problem_statement, instruction, base_description, prompt,"
        " the first that is not empty.",
    ),
]
IdKey = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        parser=options.text("--id-key"),
        help="Column of the id. Unset: instance_id, else task_id.",
    ),
]
Append = Annotated[bool, typer.Option("--append", help="Keep the rows that the output has; skip their ids.")]
TaskRoot = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        parser=options.folder("--task-root"),
        help="Drop rows whose id is no task directory of this folder.",
    ),
]
Glob = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN",
        parser=options.below("--glob", "folder"),
        help="Which task directories of a folder. Unset: all.",
    ),
]
InstructionPath = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        parser=options.below("--instruction-path", "task"),
        help="File of a task directory that is the prompt.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Write nothing when a row has to be dropped.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Report only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Report for programs.")]


@app.command()
def prepare(  # noqa: PLR0917 - the options of a command line are named
    source: Source,
    output: Output,
    split: Split = "train",
    config: Config = None,
    revision: Revision = None,
    limit: Limit = None,
    agent_name: AgentName = None,
    prompt_key: PromptKey = None,
    id_key: IdKey = None,
    append: Append = False,
    task_root: TaskRoot = None,
    glob: Glob = None,
    instruction_path: InstructionPath = "instruction.md",
    strict: Strict = False,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Make the JSONL that a job's data.jsonl names, and report what was dropped and why.

    Exit code 1 when nothing was written: no row is left, a file cannot be read, or --strict.
    """
    from harborrl_cli.data_report import Outcome
    from harborrl_trainer.data.prepare import Order
    from harborrl_trainer.data.rows import Converter
    from harborrl_trainer.data.sources import Selection

    order = Order(limit, append, strict, dry_run, task_root, instruction_path)
    converter = Converter(split, agent_name, prompt_key, id_key)
    with one_line_errors():
        found = _opened(source, Selection(split, config, revision, glob, instruction_path))
        report, error = _run(found, output, converter, order)
        outcome = Outcome(found.described, output, report, error, dry_run)
        with reporting(f"{output} {'has been written' if outcome.changed else 'is as it was'}"):
            as_json(outcome.document()) if json else say(outcome.text())
        if error:
            _refuse(error, source, json=json)


def _refuse(error: str, source: str, *, json: bool) -> NoReturn:
    """The document for programs holds the error already."""
    if not json:
        complain(f"{source}: {error}")
    raise typer.Exit(REFUSED)


def _opened(source: str, selection: "Selection") -> "Input":
    from harborrl_trainer.data.sources import OptionError, open_input

    try:
        return open_input(source, selection)
    except OptionError as wrong:
        options.refuse(wrong.option, wrong.said)


def _run(found: "Input", output: Path, converter: "Converter", order: "Order") -> "tuple[Report, str | None]":
    """What became of the rows, and why nothing was written, if so."""
    from harborrl_trainer.data.prepare import NothingWrittenError
    from harborrl_trainer.data.prepare import prepare as write

    try:
        return write(found, output, converter, order), None
    except NothingWrittenError as refused:
        return refused.report, str(refused)
