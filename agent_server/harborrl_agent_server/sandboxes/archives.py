"""Transfers as tar archives: what goes in carries no foreign owner, what comes out cannot leave its directory."""

import re
import shutil
import tarfile
from pathlib import Path
from typing import IO

from harborrl_agent_server.sandboxes.streams import TransferTooLargeError

MEMBER_LIMIT = 20_000
"""Names in one download. An agent can make a million empty files under /logs, and a shared volume takes a millisecond
or more for each: an hour in a thread that nothing can cancel."""


CHANGED = re.compile(r"tar: .*: (file changed as we read it|File removed before we read it|File shrank by .*)")


class BadArchiveError(Exception):
    """A sandbox sent something that is not a whole tar archive."""


def pack_directory(source: Path, archive: IO[bytes]) -> None:
    """The children of `source`, owned by root, with modes, links, empty directories; the target's own mode stays."""
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for child in sorted(source.iterdir()):
            tar.add(child, arcname=child.name, filter=_owned_by_root)


def pack_file(source: Path, name: str, archive: IO[bytes]) -> None:
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(source.resolve(), arcname=name, filter=_owned_by_root)


def unpack(archive: IO[bytes], target: Path, *, limit: int, members: int = MEMBER_LIMIT) -> list[str]:
    """Extract into `target`; returns the names that were refused.

    Absolute paths, `..`, links that lead outside and devices are skipped one by one: a hostile name costs only itself.
    A file already in the way is replaced, never written through: it may be a link that an earlier member made.
    """
    refused: list[str] = []
    target.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            for member in tar:
                limit -= member.size
                members -= 1
                if limit < 0 or members < 0:
                    raise TransferTooLargeError("the archive unpacks to more than the transfer limit, or to more files")
                if member.isdev():
                    refused.append(member.name)
                    continue
                try:
                    tar.extract(member, target, filter="data")
                except (tarfile.FilterError, OSError):
                    refused.append(member.name)
            _refuse_half(archive, tar.offset)
    except tarfile.ReadError as error:
        raise BadArchiveError(f"the sandbox sent no whole tar archive: {error}") from error
    return refused


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
