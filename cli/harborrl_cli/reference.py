"""docs/cli.md, generated from the commands themselves: `python -m harborrl_cli.reference` rewrites it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from harborrl_cli.__main__ import app

PAGE = Path("docs/cli.md")
INTRODUCTION = """\
# The `harborrl` command line

Generated from the commands by `python -m harborrl_cli.reference`; do not edit.

`pip install '.[cli]'` in a checkout is small and needs neither cluster nor torch. `.[cli,data]` adds Parquet and the
Hugging Face hub (166 MB of pyarrow), `.[cli,trainer]` the torch that `dumps summary` and `dumps compare` open
pickles with. Results are on standard output (with `--json` as one document), what is wrong is one line each on
standard error. Exit codes: 0 well, 1 refused, 2 a wrong command line or, for `validate`, a file that cannot be read,
74 standard output that cannot be written, on a full disk say: no verdict then.

What data sets may look like and which rows are dropped: [data.md](data.md). How dumps are opened:
[decision 0092](decisions/0092-pickles-are-opened-apart.md). What `validate` cannot see is what only a cluster knows:
claims, namespaces, queues, other jobs, quotas, images that the installation names.
"""


def render() -> str:
    root = typer.main.get_command(app)
    parts = [INTRODUCTION, *_commands(root, "harborrl")]
    return "\n".join(parts)


def _commands(command: Any, name: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for child in command.commands.values():
            yield from _commands(child, f"{name} {child.name}")
        return
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
    usage = " ".join([name, *(one.metavar or one.name.upper() for one in arguments), "[OPTIONS]"])
    yield f"## `{usage}`\n\n{_paragraphs(command.help)}\n\n| | default | |\n|---|---|---|"
    yield from (_row(one) for one in (*arguments, *options))
    yield ""


def _row(one: Any) -> str:
    names = ", ".join(f"`{name}`" for name in one.opts) if one.param_type_name == "option" else f"`{one.metavar}`"
    default = "" if one.default in (None, False, "") or callable(one.default) else f"`{one.default}`"
    return f"| {names} | {'required' if one.required else default} | {_one_line(one.help)} |"


def _paragraphs(text: str | None) -> str:
    return "\n\n".join(_one_line(part) for part in (text or "").split("\n\n"))


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def main(root: Path) -> None:
    (root / PAGE).write_text(render())


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
