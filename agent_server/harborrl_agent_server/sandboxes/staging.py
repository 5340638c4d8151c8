"""What is to be done in a sandbox before the tests run there, kept until it can go in one command."""

import shlex
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tarfile import BLOCKSIZE
from typing import IO

from harborrl_agent_server.sandboxes.archives import pack_below_root
from harborrl_agent_server.sandboxes.commands import QUIESCE, REWARDS_REMOVED, SHELL, counting

CHUNK = 1024 * 1024


@dataclass(frozen=True)
class Step:
    """One of the commands that became one: what it would have been alone."""

    argv: list[str]
    stdin: IO[bytes] | None = None
    fatal: bool = True
    """Whether Harbor ends the grading when it fails."""


class Upload:
    """A folder, to be packed at once: Harbor's copy of it may be gone soon."""

    def __init__(self, target: str, *, fatal: bool) -> None:
        self.target = target
        self.fatal = fatal
        self.size = 0
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the stage

    def pack(self, source: Path) -> None:
        self.size = pack_below_root(source, self.target, self.file)


class Stage:
    """Always in this order: end the processes, commands before the files, files, commands behind them."""

    def __init__(self) -> None:
        self.quiesces = False
        self.removes_rewards = False
        self.uploads: list[Upload] = []
        self.behind: list[str] = []
        """Shell commands whose failure shows in what follows."""

    def __bool__(self) -> bool:
        return bool(self.quiesces or self.removes_rewards or self.uploads or self.behind)

    @property
    def is_for_tests(self) -> bool:
        return self.quiesces or self.removes_rewards or bool(self.behind) or any(one.fatal for one in self.uploads)

    def close(self) -> None:
        for upload in self.uploads:
            upload.file.close()

    def joined(self, payload: IO[bytes]) -> list[str]:
        """All of it as one command that reads `payload`, which is written here."""
        lines = [QUIESCE] if self.quiesces else []
        lines += [REWARDS_REMOVED] if self.removes_rewards else []
        if self.uploads:
            size = write_joined(self.uploads, payload)
            lines += [f"{folder} || exit 1" for folder in folders(self.uploads)]
            lines.append(f"head -c {size} | tar -xf - -C / || exit 1")
        lines += [*self.behind, ":"]
        return counting("\n".join(lines))

    def steps(self) -> Iterable[Step]:
        """Each for itself."""
        if self.quiesces:
            yield Step([SHELL, "-c", QUIESCE])
        if self.removes_rewards:
            yield Step([SHELL, "-c", REWARDS_REMOVED])
        for upload in self.uploads:
            upload.file.seek(0)
            yield Step([SHELL, "-c", "; ".join([*folders([upload]), "exec tar -xf - -C /"])], upload.file, upload.fatal)
        for command in self.behind:
            yield Step([SHELL, "-c", command], fatal=False)


def folders(uploads: Iterable[Upload]) -> list[str]:
    """`tar` makes the folders of its members itself."""
    return [f"mkdir -p {shlex.quote(upload.target)}" for upload in uploads if upload.size == 0]


def write_joined(uploads: Iterable[Upload], payload: IO[bytes]) -> int:
    """One archive of the members of all; its size in bytes."""
    for upload in uploads:
        upload.file.seek(0)
        left = upload.size
        while left and (data := upload.file.read(min(CHUNK, left))):
            payload.write(data)
            left -= len(data)
    payload.write(bytes(2 * BLOCKSIZE))
    return payload.tell()
