"""An end to what holds the interpreter: a regular expression heeds signals, and no time-out of an event loop."""

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def rings_after(limit_s: float = 10.0) -> Iterator[None]:
    """Raises `TimeoutError` where the block computes for longer than it needs, however busy the machine."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"still at it after {limit_s:g} s")

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
