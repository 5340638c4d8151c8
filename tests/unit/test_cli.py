"""The command line itself: there at once, documented as it is, and light."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harborrl_cli import printing, reference
from harborrl_cli.__main__ import app
from harborrl_trainer.data.causes import MEANING
from harborrl_trainer.data.rows import STRIPPED_KEYS

ROOT = Path(__file__).resolve().parents[2]

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("cli", "trainer", "operator"))}

HEAVY = """
import sys
sys.argv = ["harborrl", "--help"]
from harborrl_cli.__main__ import main
try:
    main()
except SystemExit:
    pass
wanted = ("harborrl_operator", "harborrl_trainer", "kubernetes", "numpy", "orjson", "pydantic", "torch", "yaml")
print(sorted(name for name in wanted if name in sys.modules), file=sys.stderr)
"""


def test_the_page_is_what_the_commands_say() -> None:
    assert (ROOT / reference.PAGE).read_text() == reference.render(), "run `make generate`"


def test_the_page_on_data_explains_each_cause_and_names_each_stripped_key() -> None:
    text = (ROOT / "docs" / "data.md").read_text()
    assert [cause for cause, meaning in MEANING.items() if f"| {cause} | {meaning} |" not in text] == []
    assert [key for key in STRIPPED_KEYS if f"`{key}`" not in text] == []


def test_help_imports_nothing_that_a_command_needs() -> None:
    done = subprocess.run(  # noqa: S603 - our own interpreter with our own text
        [sys.executable, "-c", HEAVY],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.strip() == "[]"
    assert "validate" in done.stdout


@pytest.mark.parametrize(
    "words", [["--help"], ["data", "prepare", "--help"], ["dumps", "--help"], ["validate", "--help"]]
)
def test_help_is_there(words: list[str]) -> None:
    assert CliRunner().invoke(app, words).exit_code == 0


def test_no_folder_of_the_command_line_shadows_a_module() -> None:
    assert [path.name for path in (ROOT / "cli").iterdir() if path.suffix == ".py"] == []


@pytest.mark.parametrize("text", ["\x1b[31m", "a\nb", "\x9b", "\u202ejpg", "\x00"])
def test_control_characters_never_reach_a_terminal(text: str) -> None:
    assert not printing.clean(text).isprintable() or "\N{REPLACEMENT CHARACTER}" in printing.clean(text)


def test_argv_wants_one_of_file_and_preset() -> None:
    for words in (["argv"], ["argv", "--file", "job.yaml", "--preset", "x"]):
        done = CliRunner().invoke(app, words)
        assert (done.exit_code, done.stderr) == (2, "argv: give exactly one of --file and --preset\n")


def test_argv_is_what_the_trainer_prints() -> None:
    pytest.importorskip("harborrl_trainer.launch.argv_command", reason="this tree has no launch for engine miles")
    done = CliRunner().invoke(app, ["argv", "--preset", "glm47-flash-sync"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["argv"][0] == "train.py"
    refused = CliRunner().invoke(app, ["argv", "--preset", "nothing"])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)


def test_the_version_is_said() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0
    assert done.stdout.startswith("harborrl")


def test_argv_of_a_file_that_is_no_utf_8_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes("# réglages\nkind: HarborRLJob\n".encode("latin-1"))
    done = CliRunner().invoke(app, ["argv", "--file", str(file)])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"{file}: is not UTF-8 (byte 3); save it as UTF-8\n"


FULL = Path("/dev/full")
SMOKE = str(ROOT / "examples" / "miles" / "smoke.yaml")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "words",
    [
        ["harborrl_cli", "validate", SMOKE],
        ["harborrl_cli", "argv", "--file", SMOKE],
        ["harborrl_cli", "--help"],
        ["harborrl_trainer", "argv", "--file", SMOKE],
    ],
)
def test_results_that_do_not_fit_on_the_disk_are_no_verdict(words: list[str]) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(  # noqa: S603 - our own interpreter with our own modules
            [sys.executable, "-m", *words], env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    said = "standard output: cannot be written (No space left on device), what is there is not whole; make room where"
    assert (done.returncode, done.stderr) == (74, f"{said} it goes\n")


@pytest.mark.parametrize("module", ["harborrl_cli", "harborrl_trainer"])
def test_a_reader_that_has_seen_enough_is_no_error(module: str) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        done = subprocess.run(  # noqa: S603 - same
            [sys.executable, "-m", module, "argv", "--preset", "glm47-flash-sync"],
            env=ENVIRONMENT, stdout=gone, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_lines_of_argv_are_its_words_as_a_shell_reads_them() -> None:
    preset = ["argv", "--preset", "glm47-flash-sync"]
    whole = json.loads(CliRunner().invoke(app, preset).stdout)
    lines = CliRunner().invoke(app, [*preset, "--lines"]).stdout.splitlines()
    at = lines.index("train.py")
    assert shlex.split("\n".join(lines[at:])) == whole["argv"]
    assert shlex.split("\n".join(lines[:at])) == [f"{name}={value}" for name, value in sorted(whole["env"].items())]
    assert "--rollout-batch-size 4" in lines
    assert all(line.startswith("--") for line in lines[at + 1 :])
