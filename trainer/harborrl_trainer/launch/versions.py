"""Miles by commit: which flags it knows, what it dumps, what its session server can, and which presets it can run.

The flags are those of Miles' own parser, written by `scripts/miles_flags.py`. Those of SGLang are of the release that
the image is built on; Miles' branch of it may know a few more, so that an unknown `--sglang-` flag is a remark and no
refusal: the image's own parser has the last word (parser_check).
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.launch.seam import Adjustment

DOCUMENTED = "9a003644739f4e6dd509e2e8337e8ae7e571941c"
"""Commit of the documented default image."""

SHORTEST = 7
"""Digits of a commit that name it."""


@dataclass(frozen=True)
class MilesVersion:
    """One commit of Miles with the Megatron and SGLang of its image."""

    commit: str
    date: str
    images: tuple[str, ...]
    """Tags that are known to hold it."""
    example: str
    """Directory of the documented launchers in the checkout."""
    session_servers: tuple[str, ...]
    port_range: bool
    """Whether `--session-server-port` takes two values, a range with one server a port."""
    dumps: tuple[str, ...]
    """Directories that `--dump-details` fills."""
    sentinel: str | None
    """Flag of the file that asks for a checkpoint; None: only `--save-interval` saves."""
    environment: Mapping[str, str]
    """What its launchers set and later ones need no more."""
    arguments: tuple[tuple[str, ...], ...]
    """The same in flags."""
    flags: Mapping[str, str]
    """Flag -> kind: `bare`, or `int`, `float`, `str` with `+` many, `?` optional, `*2` two."""
    choices: Mapping[str, tuple[str, ...]]
    """Flag of Miles or Megatron -> the words that it takes, where it takes no others."""

    @property
    def short(self) -> str:
        return self.commit[:SHORTEST]

    attributes: Mapping[str, str]
    """Flag of Miles or Megatron -> the attribute that it sets, where that has another name."""

    def setting(self, attribute: str) -> str | None:
        """The flag that sets what Miles keeps under that name; None where no known one does."""
        same = "--" + attribute.replace("_", "-")
        if self.knows(same) and same not in self.attributes:
            return same
        return next((flag for flag, sets in self.attributes.items() if sets == attribute), None)

    def knows(self, flag: str) -> bool:
        return flag in self.flags or self._of_eval_fleet(flag) in self.flags

    def kind(self, flag: str) -> str | None:
        return self.flags.get(flag) or self.flags.get(self._of_eval_fleet(flag))

    def nearest(self, flag: str) -> str | None:
        """The known flag that is most like `flag`, for messages; hyphens do not count where `flag` begins its name."""
        written = flag.replace("-", "")
        begun = [known for known in self.flags if known.replace("-", "").startswith(written)]
        return begun[0] if len(begun) == 1 else next(iter(difflib.get_close_matches(flag, self.flags, 1, 0.8)), None)

    @staticmethod
    def _of_eval_fleet(flag: str) -> str:
        return "--" + flag.removeprefix("--eval-") if flag.startswith("--eval-sglang-") else flag


@cache
def versions() -> Mapping[str, MilesVersion]:
    """All known commits, newest first."""
    return {commit: _read(commit, known) for commit, known in _load("versions.json").items()}


def version_of(commit: str, image: str, *, explicit: bool) -> tuple[MilesVersion, tuple[Adjustment, ...]]:
    """The version that runs: the commit when the user wrote it, else that of the image, else the documented one.

    Raises ConfigurationError where nobody knows the commit, or a known image holds another one.
    """
    held = next((version for version in versions().values() if image in version.images), None)
    if explicit:
        named = _named(commit)
        if held is not None and held != named:
            raise ConfigurationError(
                f"trainer.config.milesSrcCommit: names Miles {named.short}, and image {image} holds {held.short}; set"
                f" trainer.image to an image with Miles {named.short}, or leave milesSrcCommit out"
            )
        return named, ()
    if held is not None:
        return held, ()
    chosen = _named(commit)
    reason = (
        f"image {image or '(none)'} is not in the table of Miles versions: taken for {chosen.short}; name the commit"
        " in it by trainer.config.milesSrcCommit"
    )
    return chosen, (Adjustment("trainer.config.milesSrcCommit", chosen.commit, reason),)


def _named(commit: str) -> MilesVersion:
    for known, version in versions().items():
        if len(commit) >= SHORTEST and known.startswith(commit):
            return version
    raise ConfigurationError(
        f"trainer.config.milesSrcCommit: Miles {commit} is not among the known versions"
        f" ({', '.join(version.short for version in versions().values())}): name one of them, or leave it out"
    )


def _read(commit: str, known: Mapping[str, Any]) -> MilesVersion:
    tables = _load(f"flags-{commit[:SHORTEST]}.json")
    return MilesVersion(
        commit=commit,
        date=known["date"],
        images=tuple(known["images"]),
        example=known["example"],
        session_servers=tuple(known["sessionServer"]["versions"]),
        port_range=known["sessionServer"]["portRange"],
        dumps=tuple(known["dumps"]),
        sentinel=known["sentinel"],
        environment=known["environment"],
        arguments=tuple(tuple(argument) for argument in known["arguments"]),
        choices={flag: tuple(words) for flag, words in tables["choices"].items()},
        attributes=tables["attributes"],
        flags={**tables["sglang"], **tables["megatron"], **tables["miles"]},
    )


def _load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((files("harborrl_trainer.launch") / "data" / name).read_text())
    return loaded
