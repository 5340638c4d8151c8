"""What a cluster has beyond the default: a choice of add-ons and of KubeRay's version, kept until it is changed."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from devcluster.errors import UnsuitableHostError
from devcluster.processes import write_atomically
from devcluster.settings import KUBERAY_VERSION

NAMES = ("kueue", "kwok", "agent-sandbox")
KUBERAY_VERSIONS = ("v1.5.1", KUBERAY_VERSION)


@dataclass(frozen=True)
class Extras:
    """The choice in force."""

    names: tuple[str, ...] = ()
    kuberay: str = KUBERAY_VERSION


@dataclass(frozen=True)
class Request:
    """What one `up` asks to change; nothing by default, so that a plain `up` keeps what is there."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    kuberay: str | None = None

    @classmethod
    def parse(cls, add: Iterable[str], remove: Iterable[str], kuberay: str | None) -> "Request":
        """From the command line; raises UnsuitableHostError for a name or version that there is not."""
        wanted, unwanted = tuple(add), tuple(remove)
        for name in (*wanted, *unwanted):
            if name not in NAMES:
                raise UnsuitableHostError(f"There is no add-on {name!r}. There are: {', '.join(NAMES)}.")
        if both := set(wanted) & set(unwanted):
            raise UnsuitableHostError(f"{', '.join(sorted(both))} is asked for and refused at once; leave one out.")
        version = f"v{kuberay.removeprefix('v')}" if kuberay else None
        if version is not None and version not in KUBERAY_VERSIONS:
            raise UnsuitableHostError(
                f"KubeRay {version} is not pinned here. There are: {', '.join(KUBERAY_VERSIONS)}."
            )
        return cls(wanted, unwanted, version)

    def __bool__(self) -> bool:
        return self != Request()

    def on(self, extras: Extras) -> Extras:
        """The choice after this request."""
        names = tuple(n for n in NAMES if (n in extras.names or n in self.add) and n not in self.remove)
        return Extras(names, self.kuberay or extras.kuberay)


def _record(state: Path) -> Path:
    return state / "extras.json"


def recorded(state: Path) -> Extras:
    """The choice of the last `up`."""
    try:
        raw = json.loads(_record(state).read_text())
    except FileNotFoundError:
        return Extras()
    return Extras(tuple(raw["names"]), raw["kuberay"])


def record(state: Path, extras: Extras) -> None:
    write_atomically(_record(state), json.dumps(asdict(extras)))


def refuse(request: Request, cluster: str) -> None:
    """On a cluster that is not our own nothing is installed beside KubeRay."""
    if request:
        raise UnsuitableHostError(
            f"--with, --without and --kuberay work on the cluster that devcluster makes itself, not on {cluster}:"
            " install add-ons there as their own documentation says."
        )
