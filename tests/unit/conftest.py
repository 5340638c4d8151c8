"""Garbage is collected behind each test, so that what was dropped unclosed fails the test that dropped it."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agent_tasks import write_task


@pytest.fixture(scope="session", autouse=True)
def _at_the_end_all_is_garbage() -> Iterator[None]:
    """As ever: some libraries complain of what Python leaves to them."""
    yield
    gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def _what_is_there_is_no_garbage() -> None:
    """A collection would look through all loaded modules: tenths of a second for each test."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_is_dropped_unclosed() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A folder of tasks with one, `write-greeting`."""
    root = tmp_path / "tasks"
    write_task(root)
    return root
