"""Presets: the documented launchers' argument lists as data, with `{names}` where a job or its shape decides."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.launch.versions import MilesVersion, versions


@dataclass(frozen=True)
class Preset:
    """One launcher."""

    name: str
    title: str
    script: str
    mode: str
    model_type: str
    sizing: str
    """Which of sizing's rules compute the shape: `fixed`, `async` or `lora`."""
    versions: tuple[str, ...]
    """Commits of Miles that know all of its flags (a test compares)."""
    max_seq_len: int
    parallelism: Mapping[str, int | None]
    lora: Mapping[str, Any] | None
    scratch_gib: int | None
    """Local disk of all nodes together that the paused trainer is written to; a quarter above what the launcher found.
    """
    environment: Mapping[str, str]
    arguments: tuple[tuple[str, ...], ...]
    """In the launcher's order, model architecture excluded."""

    def value(self, flag: str) -> str | None:
        """The literal that the preset gives `flag`."""
        return next((words[1] for words in self.arguments if words[0] == flag and len(words) > 1), None)

    def missing_in(self, version: MilesVersion) -> tuple[str, ...]:
        """Flags that `version` does not know."""
        return tuple(words[0] for words in self.arguments if not version.knows(words[0]))


@cache
def presets() -> Mapping[str, Preset]:
    loaded = json.loads((files("harborrl_trainer.launch") / "data" / "presets.json").read_text())
    return {
        name: Preset(
            name=name,
            title=known["title"],
            script=known["script"],
            mode=known["mode"],
            model_type=known["modelType"],
            sizing=known["sizing"],
            versions=tuple(known["versions"]),
            max_seq_len=known["maxSeqLen"],
            parallelism=known["parallelism"],
            lora=known["lora"],
            scratch_gib=known["scratchGiB"],
            environment=known["environment"],
            arguments=tuple(tuple(words) for words in known["arguments"]),
        )
        for name, known in loaded.items()
    }


def preset_named(name: str, version: MilesVersion) -> Preset:
    """ConfigurationError where there is none of that name, or where `version` cannot run it."""
    preset = presets().get(name)
    if preset is None:
        raise ConfigurationError(f"trainer.preset: there is no '{name}'; choose one of {', '.join(presets())}")
    if version.commit in preset.versions:
        return preset
    missing = preset.missing_in(version)
    fitting = ", ".join(versions()[commit].short for commit in preset.versions)
    raise ConfigurationError(
        f"trainer.preset: {name} needs {len(missing)} flags that Miles {version.short} does not know"
        f" ({', '.join(missing)}); set trainer.image to an image with Miles {fitting} and"
        " trainer.config.milesSrcCommit to its commit, or choose another preset"
    )
