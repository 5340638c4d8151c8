"""Process 1 of a server's container: hands signals on, reaps orphans, ends a server that hangs when it is told to go.

The kubelet cannot end one early. A replaced server may take as long as its longest trial, so that is its grace period,
and one that runs is not shortened: SyncTerminatingPod of Kubernetes 1.35 drops the context that would cut it off (its
TODO names kubernetes/kubernetes#113606) and waits as long as it was first told.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable

HUNG_SECONDS = 45.0
"""Without a sign of life after it was told to go: longer than a server takes on a busy node, within the 60 s that the
deletion of a job may take."""

LOOK_SECONDS = 1.0
"""Between two looks at the clock; the server's own end wakes us at once."""

ASLEEP_SECONDS = 5.0
"""Between two looks, which belong a second apart: then the watcher itself stood still (a paused machine, a processor
that others took), with every sign of life of that time still unread."""

STOPS = (signal.SIGTERM, signal.SIGINT)

Beat = Callable[[], None]
"""A sign of life, to be given by the event loop that serves."""


def guarded(serve: Callable[[Beat], int], hung_s: float = HUNG_SECONDS) -> int:
    """Run `serve` in a child and return its exit code, 128 + n for signal n. To be called before any thread exists."""
    reading, writing = os.pipe()
    # Held back until we can hand it on: a signal in between would end us and leave the server to itself.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(reading)
        return serve(lambda: _write(writing))
    os.close(writing)
    guard = Guard(child, reading, hung_s)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return guard.wait()


class Silence:
    """How long a server that was told to go gives no sign of life; before that the liveness probe looks after it.

    Time in which nobody looked does not count. Times are of a monotonic clock, in seconds.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: float | None = None
        self._looked: float | None = None

    def told_to_go(self, now: float) -> None:
        self._since = now if self._since is None else self._since

    def heard(self, now: float) -> None:
        self._since = None if self._since is None else now

    def is_too_long(self, now: float) -> bool:
        asleep = 0.0 if self._looked is None else now - self._looked
        self._looked = now
        if self._since is not None and asleep > ASLEEP_SECONDS:
            self._since += asleep
        return self._since is not None and now - self._since > self._limit_s


class Guard:
    """The parent's side of one server."""

    def __init__(self, child: int, beats: int, hung_s: float) -> None:
        self._child, self._beats, self._hung_s = child, beats, hung_s
        self._silence = Silence(hung_s)
        for sign in STOPS:
            signal.signal(sign, self._hand_on)

    def wait(self) -> int:
        was_killed = False
        while (code := self._ended()) is None:
            if not was_killed and self._silence.is_too_long(time.monotonic()):
                sys.stderr.write(f"harborrl_agent_server: hangs {self._hung_s:g} s after it was told to go; killed\n")
                os.kill(self._child, signal.SIGKILL)
                was_killed = True
            self._listen()
        return code if code >= 0 else 128 - code

    def _hand_on(self, sign: int, _: object) -> None:
        self._silence.told_to_go(time.monotonic())
        os.kill(self._child, sign)

    def _listen(self) -> None:
        if self._beats < 0:
            time.sleep(LOOK_SECONDS / 10)
        elif select.select([self._beats], [], [], LOOK_SECONDS)[0]:
            if os.read(self._beats, 4096):
                self._silence.heard(time.monotonic())
            else:
                os.close(self._beats)
                self._beats = -1

    def _ended(self) -> int | None:
        """The server's exit code once it has ended; whoever else has ended is reaped, for an orphan's parent is us."""
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            if ended[0] == self._child:
                return os.waitstatus_to_exitcode(ended[1])
        return None


def _write(pipe: int) -> None:
    try:
        os.write(pipe, b".")
    except BrokenPipeError:
        os._exit(70)  # nobody is left to answer to
