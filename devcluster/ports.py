"""Which process listens on a port, read from /proc."""

import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from devcluster.errors import PortTaken

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
    return {port: inode for path in tables if path.exists() for port, inode in listening_inodes(path.read_text()).items()}


def _socket_links(proc: Path) -> Iterator[tuple[Path, str]]:
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            for descriptor in (entry / "fd").iterdir():
                yield entry, os.readlink(descriptor)
        except OSError:  # The process ended, or is not ours to look into.
            continue


def holder_of(inode: int, proc: Path = Path("/proc")) -> str:
    """The process that has the socket open, as `name (pid N)`."""
    wanted = f"socket:[{inode}]"
    for entry, link in _socket_links(proc):
        if link == wanted:
            return f"{(entry / 'comm').read_text().strip()} (pid {entry.name})"
    return "a process that this user cannot see"


def refuse_taken(purposes: Mapping[int, str], proc: Path = Path("/proc")) -> None:
    """Raises PortTaken for the first wanted port on which somebody listens."""
    taken = listeners(proc)
    for port, purpose in purposes.items():
        if port in taken:
            raise PortTaken(port, purpose, holder_of(taken[port], proc))


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Ports that were free a moment ago; all are held open together so that no two are equal."""
    sockets = [socket.create_server((address, 0)) for _ in range(count)]
    try:
        return [opened.getsockname()[1] for opened in sockets]
    finally:
        for opened in sockets:
            opened.close()
