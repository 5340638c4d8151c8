"""Options of all tests, and what keeps some of them from running on a machine that cannot."""

import functools
import gc
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from devcluster.environment import completed
from hypothesis import settings

from support import reached

# Clients in this process and programs that it starts must not ask a proxy for the clusters that the tests run.
os.environ.update(completed(os.environ))

# Machines are shared, so no property is judged by its time; a change is judged by the same examples as the last one.
# HYPOTHESIS_PROFILE=explore draws new ones.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


LAST = "test_reasons_reached.py"
"""Looks at what all other unit tests reached, in this run and in those that it goes on from."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing with them")
    parser.addoption("--leave-reached", type=Path, help=f"write what was reached, for a later {LAST}")
    parser.addoption("--reached", type=Path, action="append", default=[], help="go on from what another run left")


def pytest_configure(config: pytest.Config) -> None:
    for place in config.getoption("--reached"):
        reached.go_on_from(place)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name == LAST)
    unit = Path(__file__).parent / "unit"
    reached.FILES.update(str(item.path.relative_to(unit)) for item in items if item.path.is_relative_to(unit))
    missing = {str(path.relative_to(unit)) for path in unit.rglob("test_*.py")} - reached.FILES
    if missing and config.getoption("--reached"):
        raise pytest.UsageError(f"neither this run nor those before it had {', '.join(sorted(missing))}")
    for item in items:
        if item.path.name == LAST and missing:
            item.add_marker(pytest.mark.skip(f"says something after all unit tests; {len(missing)} files are not run"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if place := session.config.getoption("--leave-reached"):
        reached.leave(place)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("namespaces") and (obstacle := no_namespaces()):
        pytest.skip(obstacle)


@functools.cache
def no_namespaces() -> str:
    """Why this process cannot make what a local sandbox lives in; empty where it can."""
    if os.geteuid() != 0:
        return "the local sandbox needs root: it mounts an overlay of this machine in namespaces of its own"
    command = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "mount", "-t", "tmpfs", "probe", "/mnt"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the list above
    except FileNotFoundError:
        return "the local sandbox needs unshare (util-linux)"
    return f"this machine allows no namespaces with mounts: {done.stderr.strip()}" if done.returncode else ""


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
