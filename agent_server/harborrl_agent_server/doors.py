"""Ports, taken before anything is served on them: uvicorn would end the process over one, and say little."""

import contextlib
import errno
import socket
from collections.abc import Iterator

from harborrl_agent_server.errors import StartupError


def doors(flag: str, host: str, port: int) -> list[socket.socket]:
    """One socket for each address of the host, bound and not yet listening: nobody is let in before we serve.

    Raises `StartupError` for a port that is taken, and for a host that is none of this machine's.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise StartupError(f"{flag.replace('port', 'host')} {host}: {said}; name an address of this machine") from error
    opened: list[socket.socket] = []
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            opened.append(door(family, address))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL and opened:
                continue  # a name of both families, one of which this machine does not have
            for one in opened:
                one.close()
            raise StartupError(
                f"{flag} {port} on {host}: {error.strerror}; choose a free port of an address of this machine"
            ) from error
    return opened


def door(family: int, address: tuple[object, ...]) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
    except OSError:
        opened.close()
        raise
    return opened


@contextlib.contextmanager
def held(*sockets: socket.socket | None) -> Iterator[None]:
    """Closed at the end, also what was never served on: uvicorn closes the rest."""
    try:
        yield
    finally:
        for one in sockets:
            if one is not None:
                one.close()
