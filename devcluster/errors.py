"""What can go wrong, named after the boundary that broke.

    DevclusterError
    ├── NotRootError         this command needs root
    ├── UnsuitableHostError  the machine lacks something, or another cluster uses it
    ├── PortTakenError       a port is held by another process
    ├── PackageInstallError  the system's package manager refused
    ├── DownloadError        a Go module could not be fetched
    ├── BuildError           a program did not compile
    ├── ImageError           an image could not be exported or pulled
    ├── ComponentError       a program ended or stayed unready
    └── CommandError         a helper program returned an error

Each message is one line: what happened, where, what to do. Running the command again is
safe after every one of them; `retriable` says whether that alone can help.
"""

from pathlib import Path
from typing import ClassVar


class DevclusterError(Exception):
    """Base of everything that the command line reports in one line with exit status 1."""

    retriable: ClassVar[bool] = False


class NotRootError(DevclusterError):
    def __init__(self, command: str) -> None:
        super().__init__(f"`{command}` needs root: it makes mounts, cgroups and a bridge. Run it with sudo.")


class UnsuitableHostError(DevclusterError):
    pass


class PortTakenError(DevclusterError):
    def __init__(self, port: int, purpose: str, holder: str) -> None:
        super().__init__(f"Port {port} ({purpose}) is held by {holder}. Stop it, or move ours with HARBORRL_PORT_BASE.")


class PackageInstallError(DevclusterError):
    retriable = True


class DownloadError(DevclusterError):
    retriable = True

    def __init__(self, module: str, detail: str) -> None:
        super().__init__(f"Download of {module} failed: {detail}. Check the network and GOPROXY, then run again.")


class BuildError(DevclusterError):
    pass


class ImageError(DevclusterError):
    pass


class ComponentError(DevclusterError):
    retriable = True

    def __init__(self, name: str, what: str, log: Path, tail: str = "") -> None:
        quoted = f"\n{tail}" if tail else ""
        super().__init__(f"{name} {what}. Its log is {log}.{quoted}")


class CommandError(DevclusterError):
    def __init__(self, command: str, status: int, output: str) -> None:
        super().__init__(f"`{command}` ended with status {status}: {output.strip()[-800:]}")
