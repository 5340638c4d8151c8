"""Which process listens on a port, read from /proc."""

import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from devcluster.errors import PortTakenError

LISTEN = "0A"
"""State of a listening socket in /proc/net/tcp (include/net/tcp_states.h: TCP_LISTEN)."""


def listening_inodes(table: str) -> dict[int, int]:
    """Port to socket inode for every listening line of a /proc/net/tcp or tcp6 table."""
    found = {}
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == LISTEN:
            found[int(fields[1].rpartition(":")[2], 16)] = int(fields[9])
    return found


def listeners(proc: Path = Path("/proc")) -> dict[int, int]:
    tables = (proc / "net" / name for name in ("tcp", "tcp6"))
    found: dict[int, int] = {}
    for path in tables:
        if path.exists():
            found.update(listening_inodes(path.read_text()))
    return found


def _socket_links(proc: Path) -> Iterator[tuple[Path, str]]:
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            for descriptor in (entry / "fd").iterdir():
                yield entry, str(descriptor.readlink())
        except OSError:  # The process ended, or is not ours to look into.
            continue


def holder_of(inode: int, proc: Path = Path("/proc")) -> int | None:
    """Pid of a process that has the socket open; None if this user may not look into it."""
    wanted = f"socket:[{inode}]"
    return next((int(entry.name) for entry, link in _socket_links(proc) if link == wanted), None)


def describe(pid: int | None, proc: Path = Path("/proc")) -> str:
    if pid is None:
        return "a process that this user cannot see"
    return f"{(proc / str(pid) / 'comm').read_text().strip()} (pid {pid})"


def refuse_taken(
    purposes: Mapping[int, str], is_ours: Callable[[int], bool] = lambda _pid: False, proc: Path = Path("/proc")
) -> None:
    """Raises PortTakenError for the first wanted port on which a process listens that is not one of ours."""
    taken = listeners(proc)
    for port, purpose in purposes.items():
        holder = holder_of(taken[port], proc) if port in taken else None
        if port in taken and not (holder is not None and is_ours(holder)):
            raise PortTakenError(port, purpose, describe(holder, proc))


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Ports that were free a moment ago; all are held open together so that no two are equal."""
    sockets = [socket.create_server((address, 0)) for _ in range(count)]
    try:
        return [opened.getsockname()[1] for opened in sockets]
    finally:
        for opened in sockets:
            opened.close()
