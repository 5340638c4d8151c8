"""`harborrl data prepare` as a test calls it, with rows as a test writes them."""

import json
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from harborrl_cli.__main__ import app


def flat(instance_id: str, text: str = "do it", **columns: Any) -> dict[str, Any]:
    return {"instance_id": instance_id, "problem_statement": text, **columns}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def harborrl(*words: object, stdin: str = "") -> Result:
    return CliRunner().invoke(app, [str(word) for word in ("data", "prepare", *words)], input=stdin)


def report(*words: object) -> dict[str, Any]:
    done = harborrl(*words, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "exit": done.exit_code}


def ids(path: Path) -> list[str]:
    return [json.loads(line)["metadata"]["instance_id"] for line in path.read_text().splitlines()]


def command_line(source: object, out: Path, *more: str) -> list[str]:
    """For a process of its own."""
    return [
        sys.executable,
        "-m",
        "harborrl_cli",
        "data",
        "prepare",
        "--input",
        str(source),
        "--output",
        str(out),
        *more,
    ]
