"""The question for Miles' own parser, one JSON document between two containers of the preflight pod."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from harborrl_trainer.errors import ConfigurationError

NAME = "question.json"
"""File in the directory of our code."""


@dataclass(frozen=True)
class Asked:
    """A launch as it would be, on no volume of the run."""

    argv: tuple[str, ...] = ()
    """`argv[0]` is Miles' script; empty where the arguments cannot be made, which the other container tells."""
    env: Mapping[str, str] = field(default_factory=dict)
    roots: tuple[str, ...] = ()
    """Where Miles' checkout may lie."""
    commit: str = ""
    """Commit that Miles' source must be at; empty: any."""


def dump(asked: Asked) -> str:
    return json.dumps(asdict(asked))


def load(path: Path) -> Asked:
    try:
        document = json.loads(path.read_bytes())
        return Asked(**{**document, "argv": tuple(document["argv"]), "roots": tuple(document["roots"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{path}: no question of this version ({error})") from error
