"""The fixture of all unit tests that finds what a test dropped unclosed."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TESTS = """
import tempfile

class Cycle:
    def __init__(self):
        self.itself = self
        self.file = tempfile.TemporaryFile()

def test_that_drops_a_file():
    Cycle()

def test_behind_it():
    pass
"""


def test_what_was_dropped_unclosed_fails_the_test_that_dropped_it(tmp_path: Path) -> None:
    file = tmp_path / "test_two.py"
    file.write_text(TESTS)
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603 - the list above
    failed = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("ERROR ", "FAILED "))]
    assert [line.rpartition("::")[2] for line in failed] == ["test_that_drops_a_file"], done.stdout
    assert "2 passed, 1 error" in done.stdout
