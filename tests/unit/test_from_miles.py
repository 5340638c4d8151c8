"""The page for who comes with a launcher names every flag that a field decides, and its example is a job."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from harborrl_cli.validation.jobs import Assumed, judge
from harborrl_operator.manifests.places import HOMES
from harborrl_operator.models.framework import FrameworkConfig
from harborrl_trainer.launch import argv_command
from harborrl_trainer.launch.versions import versions
from harborrl_trainer.launch.words import Argument, arguments_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "from-miles.md").read_text()
SOMEWHERE_ELSE = {"--hf-checkpoint", "--ref-load", "--prompt-data", "--save"}
"""Paths, which the volumes decide."""


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def numbered(argument: Argument) -> tuple[str, ...]:
    """A number is the same in any spelling."""
    return tuple(str(float(word)) if re.fullmatch(r"[\d.]+(e-\d+)?", word) else word for word in argument.words())


def test_each_flag_of_miles_that_a_field_decides_is_in_a_row_with_the_field() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `--")]
    known = {name: home for name, home in HOMES.items() if any(one.knows(flag(name)) for one in versions().values())}
    missing = [name for name in known if not any(f"`{flag(name)}`" in row.split("|")[1] for row in rows)]
    assert missing == []
    fields = {name: home for name, home in known.items() if re.fullmatch(r"(trainer|model|eval)\.[\w.]+", home)}
    wrong = [
        name
        for name, home in fields.items()
        if not any(f"`{flag(name)}`" in row and f"`{home}" in row.split("|")[2] for row in rows)
    ]
    assert wrong == []


def test_each_field_of_the_configuration_that_is_a_flag_is_named() -> None:
    names = [name for name in FrameworkConfig.model_fields if any(one.knows(flag(name)) for one in versions().values())]
    assert [name for name in names if f"`{flag(name)}`" not in PAGE] == []


def test_the_launcher_of_the_page_is_the_job_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.message for one in judge(yaml.safe_load(block("yaml")), Assumed()).findings] == []
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "operator"))
    (tmp_path / "job.yaml").write_text(block("yaml"))
    lines = argv_command.argv(None, tmp_path / "job.yaml", lines=True).whole.splitlines()
    words = shlex.split(block("sh").replace("\\\n", " "))
    launched = [numbered(*arguments_of(shlex.split(line))) for line in lines if line.startswith("--")]
    wanted = [numbered(one) for one in arguments_of(words[2:]) if one.flag not in SOMEWHERE_ELSE]
    assert len(wanted) > 15
    assert [one for one in wanted if one not in launched] == []
