"""The driver starts with the head; its actors are placed when the other pods have joined."""

from collections.abc import Iterator

import pytest

from harborrl_trainer.errors import InfrastructureError
from harborrl_trainer.native.actors import await_nodes


def ticking() -> Iterator[float]:
    return iter(float(second) for second in range(1000))


def test_placing_waits_for_the_worker_that_joins_later() -> None:
    joined = iter([1, 1, 2])
    pauses: list[float] = []
    seconds = ticking()
    await_nodes(2, timeout_s=60, count=lambda: next(joined), clock=lambda: next(seconds), pause=pauses.append)
    assert len(pauses) == 2


def test_a_worker_that_never_joins_ends_the_attempt_with_the_count() -> None:
    seconds = ticking()
    with pytest.raises(InfrastructureError, match=r"1 of 2 nodes joined within 60 s"):
        await_nodes(2, timeout_s=60, count=lambda: 1, clock=lambda: next(seconds), pause=lambda _seconds: None)
