"""What can go wrong, named after the boundary that broke.

    DevclusterError
    ├── NotRoot            this command needs root
    ├── HostUnsuitable     the machine lacks something, or another cluster uses it
    ├── PortTaken          a port is held by another process
    ├── PackageInstallFailed  the system's package manager refused
    ├── DownloadFailed     a Go module could not be fetched
    ├── BuildFailed        a program did not compile
    ├── ImageFailed        an image could not be exported or pulled
    ├── ComponentFailed    a program ended or stayed unready
    └── CommandFailed      a helper program returned an error

Each message is one line: what happened, where, what to do. Running the command again is
safe after every one of them; `retriable` says whether that alone can help.
"""

from pathlib import Path
from typing import ClassVar


class DevclusterError(Exception):
    """Base of everything that the command line reports in one line with exit status 1."""

    retriable: ClassVar[bool] = False


class NotRoot(DevclusterError):
    def __init__(self, command: str) -> None:
        super().__init__(f"`{command}` needs root: it makes mounts, cgroups and a bridge. Run it with sudo.")


class HostUnsuitable(DevclusterError):
    pass


class PortTaken(DevclusterError):
    def __init__(self, port: int, purpose: str, holder: str) -> None:
        super().__init__(f"Port {port} ({purpose}) is held by {holder}. Stop it, or move ours with HARBORRL_PORT_BASE.")


class PackageInstallFailed(DevclusterError):
    retriable = True


class DownloadFailed(DevclusterError):
    retriable = True

    def __init__(self, module: str, detail: str) -> None:
        super().__init__(f"Download of {module} failed: {detail}. Check the network and GOPROXY, then run again.")


class BuildFailed(DevclusterError):
    pass


class ImageFailed(DevclusterError):
    pass


class ComponentFailed(DevclusterError):
    retriable = True

    def __init__(self, name: str, what: str, log: Path, tail: str = "") -> None:
        quoted = f"\n{tail}" if tail else ""
        super().__init__(f"{name} {what}. Its log is {log}.{quoted}")


class CommandFailed(DevclusterError):
    def __init__(self, command: str, status: int, output: str) -> None:
        super().__init__(f"`{command}` ended with status {status}: {output.strip()[-800:]}")
