"""What another process on this machine is connected to, as the kernel tells it (Linux)."""

import socket
from pathlib import Path

ESTABLISHED, SYN_SENT = "01", "02"


def peers(pid: int, *, but_served_at: int) -> set[int]:
    """Remote ports of the connections that the process holds or tries, without those that others made to its own port.

    All are taken to be on loopback: an address elsewhere raises AssertionError.
    """
    inodes = _sockets(pid)
    found = set()
    for line in _table(pid):
        local, remote, state, inode = line[1], line[2], line[3], line[9]
        if inode in inodes and state in (ESTABLISHED, SYN_SENT) and _port(local) != but_served_at:
            assert _is_loopback(remote), remote
            found.add(_port(remote))
    return found


def _sockets(pid: int) -> set[str]:
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except FileNotFoundError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    return inodes


def _table(pid: int) -> list[list[str]]:
    tables = (Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6"))
    return [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _is_loopback(address: str) -> bool:
    """The kernel writes words of four bytes in the machine's own order."""
    text = address.rpartition(":")[0]
    words = [int(text[place : place + 8], 16).to_bytes(4, "little") for place in range(0, len(text), 8)]
    if len(words) == 1:
        return words[0][0] == 127
    whole = socket.inet_ntop(socket.AF_INET6, b"".join(words))
    return whole == "::1" or whole.startswith("::ffff:127.")
