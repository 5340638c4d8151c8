"""Model types: the architecture flags that Megatron needs, and which parsers and token templates fit."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import PurePath

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.launch.seam import Adjustment


@dataclass(frozen=True)
class ModelType:
    """One type of Miles' model scripts."""

    name: str
    names: tuple[str, ...]
    """Directory names under which the model is published."""
    experts: int
    """Routed experts; 0: a dense model."""
    tied: bool
    """Whether the output layer shares the embeddings' weights."""
    tito: str
    """Token template of the session server; `default` is best effort."""
    tool_call_parser: str | None
    reasoning_parser: str | None
    arguments: tuple[tuple[str, ...], ...]


@cache
def model_types() -> Mapping[str, ModelType]:
    loaded = json.loads((files("harborrl_trainer.launch") / "data" / "models.json").read_text())
    return {
        name: ModelType(
            name=name,
            names=tuple(known["names"]),
            experts=known["experts"],
            tied=known["tied"],
            tito=known["tito"],
            tool_call_parser=known["toolCallParser"],
            reasoning_parser=known["reasoningParser"],
            arguments=tuple(tuple(argument) for argument in known["arguments"]),
        )
        for name, known in loaded.items()
    }


def model_type(
    asked: str | None, preset: str | None, path: PurePath
) -> tuple[ModelType | None, tuple[Adjustment, ...]]:
    """By `model.type`, else the preset's, else by the directory's name; None where none of them tells."""
    known = model_types()
    if asked is not None:
        if asked not in known:
            raise ConfigurationError(
                f"model.type: '{asked}' is not among the known types ({', '.join(known)}): name one of them, or leave"
                " it out and give the architecture in trainer.recipeArgs (--num-layers, --hidden-size ...)"
            )
        return known[asked], ()
    if preset is not None:
        return known[preset], ()
    for found in known.values():
        if path.name in found.names:
            return found, (Adjustment("model.type", found.name, f"unset: by the directory's name {path.name}"),)
    return None, ()
