"""Asks the opener for digests of dumps; this side never looks into one."""

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from harborrl_trainer.dump_reading.digests import ANSWER, Refused, RolloutDigest, TrainDigest
from harborrl_trainer.errors import ConfigurationError, InfrastructureError

OPENER = Path(__file__).with_name("opener.py")
LONGEST_ANSWER = 64 * 1024 * 1024
GIB = 1024**3
CLOSE_SECONDS = 10.0


class RefusedDumpError(ConfigurationError):
    """A dump that was not opened to its end; the message is its path and why."""


class TornDumpError(RefusedDumpError):
    """One that a writer may still be at."""


_TORN = ("is torn", "is no pickle of plain values")
"""How the opener begins to say so."""


class Reader:
    """Holds one opener, which starts with the first file: torch takes seconds to import.

    `memory_gib` and `seconds` bound the reading of one file.
    """

    def __init__(self, memory_gib: float = 4.0, seconds: int = 300) -> None:
        self._limits = {"memory": int(memory_gib * GIB), "seconds": seconds}
        self._opener: _Opener | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opener is not None:
            self._opener.close()

    @property
    def is_isolated(self) -> bool:
        """Whether the opener, if one was needed, got a network namespace of its own from the system."""
        return self._opener is None or self._opener.isolated

    def rollout(self, path: Path) -> RolloutDigest:
        found = self._digest(path)
        if not isinstance(found, RolloutDigest):
            raise RefusedDumpError(f"{path}: is no rollout dump; it was left closed")
        return found

    def train(self, path: Path) -> TrainDigest:
        found = self._digest(path)
        if not isinstance(found, TrainDigest):
            raise RefusedDumpError(f"{path}: is no training dump; it was left closed")
        return found

    def _digest(self, path: Path) -> RolloutDigest | TrainDigest:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise RefusedDumpError(f"{path}: cannot be opened ({error.strerror})") from error
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise RefusedDumpError(f"{path}: is no file")
            text, ended = self._started().ask(file, self._limits)
        finally:
            os.close(file)
        if ended or text is None:
            hint = "; raise --seconds" if ended.startswith("takes") else ""
            raise RefusedDumpError(f"{path}: {ended or 'answers more than any dump'}{hint}")
        try:
            found = ANSWER.validate_json(text)
        except ValidationError as error:
            raise RefusedDumpError(
                f"{path}: its reader gave no answer of ours; the file is not to be trusted"
            ) from error
        if isinstance(found, Refused):
            hint = "; raise --memory" if found.refused.startswith("needs more") else ""
            kind = TornDumpError if found.refused.startswith(_TORN) else RefusedDumpError
            raise kind(f"{path}: {found.refused}{hint}")
        return found

    def _started(self) -> "_Opener":
        if self._opener is None:
            self._opener = _Opener()
        return self._opener


class _Opener:
    def __init__(self) -> None:
        torch = find_spec("torch")
        if torch is None or torch.origin is None:
            raise ConfigurationError("what is in dumps needs torch; pip install 'harborrl[trainer]', or use list")
        with contextlib.ExitStack() as undone:
            self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            undone.callback(self._channel.close)
            self._begin(Path(torch.origin).parents[1], theirs)
            self.isolated = bool(self._receive()["isolated"])
            undone.pop_all()

    def _begin(self, packages: Path, theirs: socket.socket) -> None:
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
                [sys.executable, "-I", str(OPENER), str(theirs.fileno()), str(packages)],
                pass_fds=[theirs.fileno()],
                env={"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **_library_path()},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def ask(self, file: int, limits: dict[str, int]) -> tuple[bytes | None, str]:
        """The answer, None where it is too long, and how its process ended, empty for well."""
        ours, theirs = os.pipe()
        with open(ours, "rb") as answer:  # noqa: PTH123 - a descriptor has no path
            try:
                socket.send_fds(self._channel, [json.dumps(limits).encode()], [file, theirs])
            finally:
                os.close(theirs)
            text = answer.read(LONGEST_ANSWER + 1)
        ended = str(self._receive()["ended"])
        return (text if len(text) <= LONGEST_ANSWER else None), ended

    def close(self) -> None:
        """At once where it waits for a file's process: that one goes too."""
        self._channel.close()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _receive(self) -> dict[str, object]:
        message = self._channel.recv(65536)
        if not message:
            raise InfrastructureError(
                f"the program that opens dumps ended with {self._process.wait()}; see what it wrote above"
            )
        found: dict[str, object] = json.loads(message)
        return found


def _library_path() -> dict[str, str]:
    """The one variable without which some systems do not find torch's libraries."""
    name = "LD_LIBRARY_PATH"
    return {name: os.environ[name]} if name in os.environ else {}
