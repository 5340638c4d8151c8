"""What admission knows of Miles: versions and presets; data that the trainer package wrote (miles.json).

Only what decides about a job before anything starts. Which flags a version knows is the trainer's: its preflight makes
the command line.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

_TABLE: Mapping[str, Any] = json.loads((files("harborrl_operator") / "miles.json").read_text())

SHORTEST = 7
"""Digits of a commit that name it."""


@dataclass(frozen=True)
class MilesVersion:
    """One commit."""

    commit: str
    images: tuple[str, ...]
    saves_on_request: bool
    dumps: tuple[str, ...]
    session_port_range: bool
    fully_async: bool

    @property
    def short(self) -> str:
        return self.commit[:SHORTEST]


@dataclass(frozen=True)
class Scratch:
    """Local disk that a preset writes its paused trainer to."""

    path: str
    """Where it must be mounted in every trainer pod."""
    gib: int
    """Of all nodes together."""


@dataclass(frozen=True)
class MilesPreset:
    """One documented launcher, as far as typed fields of the spec go."""

    name: str
    mode: str
    max_seq_len: int
    lora: Mapping[str, Any] | None
    scratch: Scratch | None
    config: Mapping[str, Any]
    """camelCase field of `trainer.config` -> value."""
    arguments: Mapping[str, str | bool]
    """Argument in snake_case -> value, true for a bare flag; `{name}` where the job or its shape decides."""
    parallelism: Mapping[str, int | None]
    """None: computed from the shape."""
    over_sampling: int | None
    missing: Mapping[str, tuple[str, ...]]
    """Commit -> flags that it does not know."""


VERSIONS: Mapping[str, MilesVersion] = {
    commit: MilesVersion(
        commit=commit,
        images=tuple(known["images"]),
        saves_on_request=known["saveOnRequest"],
        dumps=tuple(known["dumps"]),
        session_port_range=known["sessionPortRange"],
        fully_async=known["fullyAsync"],
    )
    for commit, known in _TABLE["versions"].items()
}
"""Newest first."""

PRESETS: Mapping[str, MilesPreset] = {
    name: MilesPreset(
        name=name,
        mode=known["mode"],
        max_seq_len=known["maxSeqLen"],
        lora=known["lora"],
        scratch=Scratch(**known["scratch"]) if known["scratch"] else None,
        config=known["config"],
        arguments=known["arguments"],
        parallelism=known["parallelism"],
        over_sampling=known["overSampling"],
        missing={commit: tuple(flags) for commit, flags in known["missing"].items()},
    )
    for name, known in _TABLE["presets"].items()
}


def version_of(commit: str, image: str, *, explicit: bool) -> MilesVersion | None:
    """The commit's when the user wrote it, else the image's, else the commit's; None: nobody knows that commit."""
    by_image = version_in(image)
    if by_image is not None and not explicit:
        return by_image
    return next(
        (known for known in VERSIONS.values() if len(commit) >= SHORTEST and known.commit.startswith(commit)), None
    )


def version_in(image: str) -> MilesVersion | None:
    """What a known image holds."""
    return next((version for version in VERSIONS.values() if image in version.images), None)
