"""`harborrl dumps`: what runs have dumped. Names alone for `list`; the others have pickles opened apart."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harborrl_cli.printing import REFUSED, as_json, clean, complain, one_line_errors, say, table

if TYPE_CHECKING:
    from harborrl_trainer.dump_reading.catalogue import Catalogue, Entry
    from harborrl_trainer.dump_reading.reader import Reader
    from harborrl_trainer.dump_reading.summary import Row

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Rollout, training, trajectory and trial dumps.")

Folders = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR…",
        help="A run's folder on the traces volume, or what Miles had as --dump-details.",
        show_default=False,
    ),
]
Checkpoints = Annotated[
    Path | None,
    typer.Option(help="The run's folder on the checkpoints volume: its index.json says whose rollouts count."),
]
Memory = Annotated[float, typer.Option(min=0.1, help="GiB that the reading of one file may take.")]
Seconds = Annotated[int, typer.Option(min=1, help="Seconds that the reading of one file may take.")]
Last = Annotated[int | None, typer.Option(min=1, help="The newest N rollouts alone.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


@app.command("list")
def list_(folders: Folders, checkpoints: Checkpoints = None, json: AsJson = False) -> None:
    """Which rollouts there are, which incarnation's count, and how far each is trained; opens no dump."""
    from harborrl_trainer.dump_reading import catalogue
    from harborrl_trainer.dump_reading.summary import entry_document

    with one_line_errors():
        found = [catalogue.read(folder, checkpoints) for folder in folders]
        if json:
            runs = [
                {"run": str(one.root), "rollouts": [entry_document(entry) for entry in one.entries]} for one in found
            ]
            as_json({"runs": runs})
            return
        for one in found:
            say(f"{clean(one.root)}: {_extent(one)}")
            rows = [
                [
                    *_name(entry),
                    "yes" if entry.owned else "no",
                    _ranks(entry),
                    "yes" if entry.trajectory else "-",
                    _size(entry.size),
                ]
                for entry in one.entries
            ]
            table(["rollout", "incarnation", "counts", "trained ranks", "trajectory", "size"], rows)


@app.command()
def summary(  # noqa: PLR0917 - the options of a command line are named
    folders: Folders,
    checkpoints: Checkpoints = None,
    last: Last = None,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Also rollouts that were collected again later.")
    ] = False,
    memory: Memory = 4.0,
    seconds: Seconds = 300,
    json: AsJson = False,
) -> None:
    """Rewards, lengths, statuses, staleness and log-probability gaps of each rollout.

    Pickles are opened by a process of its own without privileges. Exit code 1 when one was refused.
    """
    from harborrl_trainer.dump_reading import catalogue
    from harborrl_trainer.dump_reading.reader import Reader
    from harborrl_trainer.dump_reading.summary import document, summarise

    refused = False
    documents: list[dict[str, Any]] = []
    with one_line_errors(), Reader(memory, seconds) as reader:
        for folder in folders:
            found = catalogue.read(folder, checkpoints)
            rows = list(summarise(found, reader, superseded=superseded, last=last))
            refused = _complain(rows) or refused
            if json:
                documents.append({"run": str(found.root), "rollouts": [document(row) for row in rows], **_totals(rows)})
            else:
                say(f"{clean(found.root)}: {_extent(found)}")
                table(_HEADINGS, [_cells(row) for row in rows])
                say(_total_line(rows))
        if json:
            as_json({"runs": documents})
        _note_isolation(reader)
        if refused:
            raise typer.Exit(REFUSED)


@app.command()
def compare(  # noqa: PLR0917 - the options of a command line are named
    first: Annotated[Path, typer.Argument(metavar="DIR", help="A run, as for summary.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="DIR", help="The run beside it.", show_default=False)],
    last: Last = None,
    memory: Memory = 4.0,
    seconds: Seconds = 300,
    json: AsJson = False,
) -> None:
    """Two runs side by side, rollout by rollout."""
    from harborrl_trainer.dump_reading import catalogue
    from harborrl_trainer.dump_reading.comparison import compare as pairs
    from harborrl_trainer.dump_reading.comparison import document, overall
    from harborrl_trainer.dump_reading.reader import Reader
    from harborrl_trainer.dump_reading.summary import summarise

    with one_line_errors(), Reader(memory, seconds) as reader:
        sides = [list(summarise(catalogue.read(folder), reader, last=last)) for folder in (first, second)]
        refused = [_complain(rows) for rows in sides]
        found = pairs(*sides)
        if json:
            runs = [{"run": str(folder), **_totals(rows)} for folder, rows in zip((first, second), sides, strict=True)]
            as_json({"runs": runs, "rollouts": [document(pair) for pair in found], "overall": overall(found)})
        else:
            say(f"A {clean(first)}\nB {clean(second)}")
            table(["rollout", *(f"{what} {side}" for what in _COMPARED for side in ("A", "B", "B-A"))], _pairs(found))
            say(_overall_line(overall(found)))
        _note_isolation(reader)
        if any(refused):
            raise typer.Exit(REFUSED)


_HEADINGS = (
    "rollout", "incarnation", "samples", "reward", "no signal", "tokens", "truncated", "aborted", "stale",
    "|Δ log p|", "trials", "dropped",
)  # fmt: skip
_COMPARED = ("reward", "tokens", "truncated", "|Δ log p|")


def _complain(rows: Sequence["Row"]) -> bool:
    for row in rows:
        for problem in row.problems:
            complain(problem)
    return any(row.problems for row in rows)


def _note_isolation(reader: "Reader") -> None:
    if not reader.is_isolated:
        complain("note: this system gives no network namespace, so dumps were opened without that one of the walls")


def _name(entry: "Entry") -> list[str]:
    id_ = entry.incarnation
    return [f"eval {entry.rollout}" if entry.evaluation else str(entry.rollout), f"a{id_[0]}/i{id_[1]}" if id_ else "-"]


def _cells(row: "Row") -> list[str]:
    found, trials = row.statistics, row.trials
    cells = ["-"] * 7
    if found is not None:
        cells = [
            str(found.samples),
            f"{found.reward.mean:.3f} ± {found.reward.std:.3f}" if found.reward else "-",
            f"{found.groups_without_signal}/{found.groups}",
            f"{found.response_tokens.mean:.0f} (max {found.response_tokens.max:.0f})" if found.response_tokens else "-",
            str(found.statuses.get("truncated", 0)),
            str(found.statuses.get("aborted", 0)),
            f"{found.staleness.mean:.2f} (max {found.staleness.max:.0f})" if found.staleness else "-",
        ]
    gap = f"{row.gap.mean_absolute:.4f} (max {row.gap.max_absolute:.2f})" if row.gap else "-"
    lost = "-"
    if trials is not None:
        reasons = ", ".join(f"{count} {clean(reason)}" for reason, count in trials.drop_reasons.most_common(2))
        lost = f"{trials.trials - trials.kept}" + (f" ({reasons})" if reasons else "")
    return [*_name(row.entry), *cells, gap, str(trials.trials) if trials else "-", lost]


def _pairs(found: Sequence[Any]) -> list[list[str]]:
    return [[pair.name, *(_number(value) for values in pair.values.values() for value in values)] for pair in found]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _totals(rows: Sequence["Row"]) -> dict[str, Any]:
    from harborrl_trainer.dump_reading.measures import total

    return {"total": total(row.statistics for row in rows if row.statistics and not row.entry.evaluation)}


def _total_line(rows: Sequence["Row"]) -> str:
    found = _totals(rows)["total"]
    mean = "-" if found["rewardMean"] is None else f"{found['rewardMean']:.3f}"
    said = ", ".join(f"{count} {clean(status)}" for status, count in found["statuses"].items())
    return f"{found['samples']} samples in {found['rollouts']} rollouts ({said}), reward mean {mean}"


def _overall_line(found: dict[str, Any]) -> str:
    said = ", ".join(f"{name} {value:+.4g}" for name, value in found["meanDifference"].items() if value is not None)
    return f"{found['common']} rollouts in both; mean of B-A: {said or 'nothing to compare'}"


def _extent(found: "Catalogue") -> str:
    counting = [entry for entry in found.entries if entry.owned and not entry.evaluation]
    trained = sum(entry.is_trained for entry in counting)
    lost = sum(not entry.owned for entry in found.entries)
    again = f", {lost} collected again later" if lost else ""
    return f"{len(counting)} rollouts, {trained} trained{again}"


def _ranks(entry: "Entry") -> str:
    return f"{len(entry.train_files)}/{entry.ranks}" if entry.ranks else "-"


def _size(size: int) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size = size // 1000
    return f"{size} GB"
