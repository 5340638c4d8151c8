"""Programs that tests run and `python -m devcluster build` compiles."""

import pytest
from devcluster.programs import find_program
from devcluster.settings import load_settings


def program(name: str) -> str:
    """Path of kubectl or helm; fails with the command to run: a skipped test would pass for a green one."""
    found = find_program(name, load_settings())
    if found is None:
        pytest.fail(f"no {name} here: run `python -m devcluster build`, which compiles it", pytrace=False)
    return found
