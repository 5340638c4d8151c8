"""Folders of sockets that dispatchers left which were killed: nobody else would ever remove them."""

import contextlib
import shutil
import socket
from pathlib import Path

from harborrl_agent_server.settings import Worker

PREFIX = "harborrl-workers-"


def sweep(folder: Path) -> None:
    for path in folder.glob(f"{PREFIX}*"):
        if is_dead(Worker(0, path).lending_socket):
            shutil.rmtree(path, ignore_errors=True)


def is_dead(lending: Path) -> bool:
    """Whether nobody listens any more; one that does not yet has no socket yet."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as asking:
        try:
            asking.connect(str(lending))
        except ConnectionRefusedError:
            return True
        except OSError:  # none there, or somebody else's
            return False
    return False
