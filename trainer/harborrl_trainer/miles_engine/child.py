"""Miles as a process of ours: its output passed on and its end remembered, ended by its own process group alone.

Miles' launchers end leftovers by name (`pkill -9 sglang`), which also ends those of a neighbour. Here the group has
only what this driver started, and the kernel ends it with the driver, should that be killed.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

TAIL_BYTES = 256 * 1024
TERM_SECONDS = 20.0
DRAIN_SECONDS = 2.0
_PR_SET_PDEATHSIG = 1
_READ = 65536


class Child:
    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, out: BinaryIO) -> None:
        self._out = out
        self._tail = bytearray()
        libc = ctypes.CDLL(None, use_errno=True)  # loaded before the fork, which must not allocate
        parent = os.getpid()

        def die_with_the_driver() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        self._process = subprocess.Popen(  # noqa: S603 - the plan's argv, no shell
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_the_driver,  # noqa: PLW1509 - no thread of ours runs yet, and it does not allocate
        )
        if self._process.stdout is None:
            raise RuntimeError("no pipe")
        self._output = self._process.stdout
        # In a thread: Miles must not wait for its log while the driver waits for a slow volume.
        self._pump = threading.Thread(target=self._pass_on, name="output of Miles", daemon=True)
        self._pump.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def tail(self) -> str:
        """The end of what it wrote."""
        return bytes(self._tail).decode("utf-8", errors="replace")

    def wait(self, seconds: float) -> int | None:
        """Its exit code, once it has ended and its output was passed on; None when it still runs after `seconds`."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        # Not for ever: a process that it left behind may hold the pipe.
        self._pump.join(DRAIN_SECONDS)
        return code

    def end(self, seconds: float = TERM_SECONDS) -> int:
        """SIGTERM to its group, SIGKILL after `seconds`. What outlived its leader in the group is killed too."""
        self._signal(signal.SIGTERM)
        code = self.wait(seconds)
        self._signal(signal.SIGKILL)
        return self._process.wait() if code is None else code

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return  # the group is empty, or its number belongs to another by now

    def _pass_on(self) -> None:
        with self._output as pipe:
            while data := os.read(pipe.fileno(), _READ):
                self._tail += data
                with contextlib.suppress(OSError):  # a log that takes no more must not hold Miles up
                    self._out.write(data)
                    self._out.flush()
                del self._tail[:-TAIL_BYTES]
