"""Compare a value with its golden YAML; `--update-golden` rewrites it, and the diff is reviewed by eye."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

DATA = Path(__file__).resolve().parents[1] / "data"


def check(config: pytest.Config, name: str, value: Any) -> None:
    """`name` is a path below tests/data; the placeholders are listed in its README."""
    file = DATA / name
    text = yaml.safe_dump(value, sort_keys=False, width=120)
    update = config.getoption("update_golden")
    if update:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert file.exists(), f"no golden file {os.fspath(file)}: run pytest --update-golden and review it"
    assert yaml.safe_load(file.read_text()) == yaml.safe_load(text), f"{name} differs: review with --update-golden"
