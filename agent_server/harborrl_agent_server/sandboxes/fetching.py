"""Folders of a sandbox that come in one command, before Harbor asks for them one by one."""

import io
import tarfile
from collections.abc import Sequence

from harborrl_agent_server.sandboxes.commands import SHELL, SUPERVISE

FETCH_LIMIT = 2 * 1024 * 1024
"""Bytes of what comes together, held in memory: an agent may have written any amount. The rest is fetched singly."""

BLOCK = tarfile.BLOCKSIZE

FOLDER, OTHER, END = b"folder", b"other", b"end 0"

FETCH = (
    "export LC_ALL=C; n=$1; shift; "
    f'{{ for p; do if [ -d "$p" ]; then printf "%-{BLOCK}s" {FOLDER.decode()}; tar -cf - -C "$p" .; '
    f'printf "%-{BLOCK}s" "end $?"; else printf "%-{BLOCK}s" {OTHER.decode()}; fi; done; }} 2>/dev/null | head -c "$n"'
)
"""$1: bytes at most; the rest: paths. Words stand before and behind each archive, a block each as all else."""

RUN_AND_FETCH = (
    f'm=$1; n=$2; d=$3; shift 3; ({SUPERVISE}) >&2; printf "%s:%d;" "$m" "$?" >&2; set -- "$n" "$d"; {FETCH}'
)
"""$1: mark of the exit code, as of `seals`; $2, $3: as FETCH; the rest: as SUPERVISE. Both outputs of the command come
as its error output."""


def fetch(paths: Sequence[str]) -> list[str]:
    return [SHELL, "-c", FETCH, "harborrl", str(FETCH_LIMIT), *paths]


def run_and_fetch(argv: list[str], pid_file: str, *, mark: str, folder: str) -> list[str]:
    return [SHELL, "-c", RUN_AND_FETCH, "harborrl", mark, str(FETCH_LIMIT), folder, pid_file, *argv]


class Fetched:
    """What is here of paths that Harbor will ask for; each is given out once."""

    def __init__(self) -> None:
        self.wanted: list[str] = []
        """To come with the first of them."""
        self._folders: dict[str, bytes] = {}
        self._others: set[str] = set()

    def forget(self) -> None:
        """The sandbox may have changed."""
        self.wanted = []
        self._folders.clear()
        self._others.clear()

    def forget_within(self, path: str) -> None:
        """Files were written below `path`."""
        for known in [known for known in self._folders if overlap(known, path)]:
            del self._folders[known]
        self._others = {known for known in self._others if not overlap(known, path)}

    def add(self, paths: Sequence[str], output: bytes) -> None:
        """What FETCH said of `paths`; whatever is not whole is left out."""
        found = split(output)
        for path, archive in zip(paths, found, strict=False):
            if archive is None:
                self._others.add(path)
            else:
                self._folders[path] = archive

    def is_folder(self, path: str) -> bool | None:
        """None: not known."""
        return True if path in self._folders else False if path in self._others else None

    def take(self, path: str) -> bytes | None:
        return self._folders.pop(path, None)


def split(output: bytes) -> list[bytes | None]:
    """The archive of each path, or None for one that is no folder, as far as the output is whole."""
    found: list[bytes | None] = []
    begin = 0
    while begin < len(output):
        said, begin = output[begin : begin + BLOCK].rstrip(), begin + BLOCK
        if said == OTHER:
            found.append(None)
            continue
        end = end_of_archive(output, begin) if said == FOLDER else None
        if end is None or output[end : end + BLOCK].rstrip() != END:
            break
        found.append(output[begin:end])
        begin = end + BLOCK
    return found


def end_of_archive(output: bytes, begin: int) -> int | None:
    """Where the padding behind an archive ends; None for an archive that is not whole."""
    try:
        with tarfile.open(fileobj=io.BytesIO(output[begin:]), mode="r:") as tar:
            for _ in tar:
                pass
            end = begin + tar.offset
    except tarfile.TarError:
        return None
    if output[end : end + BLOCK] != bytes(BLOCK):
        return None
    while output[end : end + BLOCK] == bytes(BLOCK):
        end += BLOCK
    return end


def overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
