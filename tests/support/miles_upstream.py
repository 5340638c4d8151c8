"""Miles' source, where HARBORRL_MILES_SOURCE names a checkout or a git directory of it."""

import os
import subprocess
from pathlib import Path

import pytest

COMMIT = "31f1ca961"
"""What docs and tests speak about, unless they say otherwise."""


def miles_file(name: str, commit: str = COMMIT) -> str:
    """Text of one file; skips the test where there is no source. A checkout is read as it stands."""
    where = os.environ.get("HARBORRL_MILES_SOURCE")
    if not where:
        pytest.skip("HARBORRL_MILES_SOURCE names no checkout or git directory of Miles")
    path = Path(where) / name
    if path.is_file():
        return path.read_text()
    shown = subprocess.run(  # noqa: S603 - git alone, with a fixed commit and name
        ["git", "-C", where, "show", f"{commit}:{name}"],  # noqa: S607 - git is found on PATH
        capture_output=True,
        text=True,
        check=True,
    )
    return shown.stdout
