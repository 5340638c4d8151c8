"""A program that starts the processes of local sandboxes for a server: `python -I -S spawner.py DESCRIPTOR`.

To fork from the server itself stops its event loop until the new process has been given a processor and has begun:
beside hundreds of sandboxes on two cores that took most of its time. Standard library alone; ends with its socket.

A message is a number and the arguments, separated by NULs, with the descriptors of input, output and error output; the
answer is `NUMBER CODE` once the process has ended, or `NUMBER !REASON` when it could not be started.
"""

import contextlib
import errno
import os
import selectors
import signal
import socket
import sys

LONGEST = 1024 * 1024

DESCRIPTORS = 3

NICENESS = 15
"""Of what runs in sandboxes: hundreds of busy ones leave the server its turns (decision 0211)."""

SESSION_NICENESS = 10
"""Where the kernel shares processors between sessions (sched(7), "The autogroup feature"), niceness counts within one
alone, and each sandbox and each of its commands leads one. Without effect in a cgroup; sessions begun inside have 0."""

AUTOGROUP = "/proc/self/autogroup"


def main(descriptor: int) -> None:
    stand_back()
    channel = socket.socket(fileno=descriptor)
    watched = selectors.DefaultSelector()
    watched.register(channel, selectors.EVENT_READ)
    while True:
        for key, _ in watched.select():
            if key.fileobj is channel:
                message, given, _, _ = socket.recv_fds(channel, LONGEST, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
                if not message:
                    return
                begin(watched, channel, message, given)
            else:
                number, pid = key.data
                watched.unregister(key.fileobj)
                os.close(key.fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                channel.send(b"%s %d" % (number, code))


def stand_back() -> None:
    """For this process, which leads a session, and all that it starts. Where that is refused, a busy server waits."""
    os.nice(NICENESS)
    with contextlib.suppress(OSError), open(AUTOGROUP, "w") as niceness:  # noqa: PTH123 - starts without pathlib
        niceness.write(str(SESSION_NICENESS))


def begin(watched: selectors.BaseSelector, channel: socket.socket, message: bytes, given: list[int]) -> None:
    number, *argv = message.split(b"\0")
    try:
        pid = started(argv, given)
        watched.register(watch(pid), selectors.EVENT_READ, (number, pid))
    except OSError as error:
        channel.send(b"%s !%s" % (number, str(error).encode()))
    finally:
        for descriptor in given:
            os.close(descriptor)


def started(argv: list[bytes], given: list[int]) -> int:
    if len(given) < DESCRIPTORS:  # the kernel drops those for which this process has no room
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    places = [(os.POSIX_SPAWN_DUP2, descriptor, place) for place, descriptor in enumerate(given)]
    return os.posix_spawnp(argv[0], argv, os.environ, file_actions=places)


def watch(pid: int) -> int:
    """A process whose end we could not hear of is ended, for nobody would."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


if __name__ == "__main__":
    with contextlib.suppress(ConnectionError):  # the server was killed
        main(int(sys.argv[1]))
