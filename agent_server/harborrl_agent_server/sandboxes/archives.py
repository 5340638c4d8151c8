"""Transfers as tar archives: what goes in carries no foreign owner, what comes out cannot leave its directory."""

import errno
import re
import shutil
import sys
import tarfile
from pathlib import Path
from typing import IO, cast

from harborrl_agent_server.sandboxes.streams import TransferTooLargeError

MEMBER_LIMIT = 20_000
"""Names in one download. An agent can make a million empty files under /logs, and a shared volume takes a millisecond
or more for each: an hour in a thread that nothing can cancel."""

DEEPEST = 100
"""Directories below each other. Python looks at each part of a name anew for each name, and gives up removing a tree of
a thousand."""

HEADER_LIMIT = 64 * 1024
"""Bytes of what stands before a member's content, its name above all: the reader has them in memory several times."""

SHOWN = 100
"""Characters of a refused name."""

HOSTS_OWN = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)
"""Errors that no name or kind of a member brings about: our volume is full or broken, or this process at its limits."""

CHANGED = re.compile(r"tar: .*: (file changed as we read it|File removed before we read it|File shrank by .*)")


class BadArchiveError(Exception):
    """A sandbox sent something that is not a whole tar archive."""


def pack_directory(source: Path, archive: IO[bytes]) -> None:
    """The children of `source`, owned by root, with modes, links, empty directories; the target's own mode stays."""
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for child in sorted(source.iterdir()):
            tar.add(child, arcname=child.name, filter=_owned_by_root)


def pack_below_root(source: Path, target: str, archive: IO[bytes]) -> int:
    """As `pack_directory`, by the names that the children have in `target` seen from `/`.

    The size of the members in bytes, without the end of the archive: archives can be put one behind the other there.
    """
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for child in sorted(source.iterdir()):
            tar.add(child, arcname=f"{target.strip('/')}/{child.name}", filter=_owned_by_root)
        return tar.offset


def pack_file(source: Path, name: str, archive: IO[bytes]) -> None:
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(source.resolve(), arcname=name, filter=_owned_by_root)


def unpack(archive: IO[bytes], target: Path, *, limit: int, members: int = MEMBER_LIMIT) -> list[str]:
    """Extract into `target`; returns the names that were refused.

    Absolute paths, `..`, links that lead outside, devices and what lies too deep are skipped one by one: a hostile name
    costs only itself. One that is too long to be read is a `BadArchiveError`.
    What fails for this machine's own reasons is raised: half of a log, or of a reward, is none.
    A file already in the way is replaced, never written through: it may be a link that an earlier member made.
    """
    refused: list[str] = []
    target.mkdir(parents=True, exist_ok=True)
    source = _Source(archive)
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", source), mode="r:") as tar:
            while (member := tar.next()) is not None:
                # Else every name and map of holes is kept to the end.
                tar.members.clear()  # type: ignore[attr-defined] # typeshed leaves it out
                limit -= member.size
                members -= 1
                if limit < 0 or members < 0:
                    raise TransferTooLargeError("the archive unpacks to more than the transfer limit, or to more files")
                source.left = sys.maxsize
                if not _extracted(tar, member, target):
                    refused.append(member.name[:SHOWN])
                source.left = HEADER_LIMIT
            _refuse_half(archive, tar.offset)
    except tarfile.ReadError as error:
        raise BadArchiveError(f"the sandbox sent no whole tar archive: {error}") from error
    return refused


class _Source:
    """An archive as Python's reader takes it: what it wants between two contents has a limit."""

    def __init__(self, archive: IO[bytes]) -> None:
        self.left = HEADER_LIMIT
        self.seek, self.tell = archive.seek, archive.tell
        self._archive = archive

    def read(self, size: int) -> bytes:
        self.left -= size
        if self.left < 0:
            raise BadArchiveError(f"the sandbox sent a name or a map of holes of more than {HEADER_LIMIT} bytes")
        return self._archive.read(size)


def _extracted(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> bool:
    if member.isdev() or member.name.count("/") > DEEPEST:
        return False
    try:
        tar.extract(member, target, filter="data")
    except tarfile.FilterError:
        return False
    except OSError as error:
        if error.errno in HOSTS_OWN:
            raise
        return False
    return True


def only_changed(code: int, said: str) -> bool:
    """Whether all that `tar` says is that files were written to meanwhile: GNU's then ends with 1, its work done."""
    lines = [line for line in said.splitlines() if line.strip()]
    return code == 1 and bool(lines) and all(CHANGED.fullmatch(line) for line in lines)


def _refuse_half(archive: IO[bytes], end: int) -> None:
    """Python's reader takes an archive that breaks off between two members for a whole one."""
    archive.seek(end)
    if archive.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
        raise BadArchiveError("the sandbox sent the beginning of a tar archive and not its end")


def remove_ways_out(folder: Path) -> list[str]:
    """Take links that lead out of the folder, devices, pipes and sockets out of what others unpacked; their names."""
    root, refused = folder.resolve(), []
    for path in sorted(folder.rglob("*")):
        kept = path.resolve().is_relative_to(root) if path.is_symlink() else path.is_file() or path.is_dir()
        if not kept:
            refused.append(str(path.relative_to(folder)))
            path.unlink()
    return refused


def write_file(content: IO[bytes], target: Path) -> None:
    """A plain file at `target`; a link that stands there is replaced, not followed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    with target.open("wb") as file:
        shutil.copyfileobj(content, file)


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return None if member.isdev() else member
