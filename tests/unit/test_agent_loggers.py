"""Loggers of trials that are over, forgotten while those of others are made and forgotten."""

import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from harborrl_agent_server.loggers import forget_loggers

TRIALS = 500


@pytest.fixture
def _short_turns() -> Iterator[None]:
    """Of threads: the usual 5 ms are a whole walk through the registry."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def lives(thread: int) -> None:
    for number in range(TRIALS):
        trial = f"trial-{thread}-{number}"
        for part in "abcdefgh":
            logging.getLogger(f"harbor.tests.{trial}.{part}")
        forget_loggers(trial)


@pytest.mark.usefixtures("_short_turns")
def test_loggers_are_forgotten_while_threads_make_others() -> None:
    """`for` over logging's registry ends with an error when another thread makes a logger meanwhile."""
    kept = logging.getLogger("harbor.tests.kept")
    with ThreadPoolExecutor(4) as threads:
        for life in [threads.submit(lives, thread) for thread in range(4)]:
            life.result()
    registry = logging.Logger.manager.loggerDict
    assert not any("trial-" in name for name in registry if name.startswith("harbor.tests"))
    assert registry["harbor.tests.kept"] is kept
