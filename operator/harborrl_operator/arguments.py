"""Raw engine flags and YAML, read as far as admission depends on them."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from harborrl_operator.models.trainer import TrainerSpec

RESERVED = frozenset(
    {
        "--save",
        "--load",
        "--dump-details",
        "--save-traces-dir",
        "--session-server-port",
        "--session-server-ip",
        "--use-session-server",
        "--router-external-host",
        "--actor-num-nodes",
        "--actor-num-gpus-per-node",
    }
)
"""Flags that the operator decides: storage, ports, hosts and shape."""


class InvalidArgumentsError(ValueError):
    """Raw flags or YAML that cannot be read; the message names the field."""


def parse_flags(text: str) -> list[str]:
    """HarborFrameworkConfig's rule: cut each line at the first `#`, drop empty lines, split as POSIX shell words."""
    lines = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return shlex.split("\n".join(line for line in lines if line))


@dataclass(frozen=True)
class RawArguments:
    """Values of the raw layers by argument name in snake_case, strongest layer wins; None for a bare flag."""

    values: Mapping[str, Any]
    reserved: tuple[str, ...]
    """Reserved flags that the user wrote, as `field: flag`."""

    def integer(self, name: str) -> int | None:
        """The value as an integer, or None when it is not set; raises InvalidArgumentsError when it is no integer."""
        value = self.values.get(name)
        if value is None:
            return None
        try:
            return int(value)
        except (TypeError, ValueError):
            raise InvalidArgumentsError(f"{name} must be an integer, it is {value!r}") from None


def read_raw_arguments(trainer: TrainerSpec) -> RawArguments:
    """Reads recipeArgs < extraArgs < customConfigYaml; raises InvalidArgumentsError naming the field."""
    values: dict[str, Any] = {}
    reserved: list[str] = []
    for field, text in (("recipeArgs", trainer.recipe_args), ("extraArgs", trainer.extra_args)):
        try:
            words = parse_flags(text)
        except ValueError as error:
            raise InvalidArgumentsError(f"trainer.{field}: {error}") from None
        for flag, value in _pairs(words):
            values[_snake(flag)] = value
            if flag in RESERVED:
                reserved.append(f"trainer.{field}: {flag}")
    for key, value in _mapping(trainer.custom_config_yaml).items():
        values[_snake(str(key))] = value
        if f"--{_snake(str(key)).replace('_', '-')}" in RESERVED:
            reserved.append(f"trainer.customConfigYaml: {key}")
    return RawArguments(values=values, reserved=tuple(reserved))


def _snake(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _pairs(words: list[str]) -> Iterator[tuple[str, str | None]]:
    for index, word in enumerate(words):
        if not word.startswith("--"):
            continue
        flag, equals, value = word.partition("=")
        if equals:
            yield flag, value
        else:
            following = words[index + 1] if index + 1 < len(words) else "--"
            yield flag, None if following.startswith("--") else following


def _mapping(text: str) -> Mapping[str, Any]:
    try:
        loaded = yaml.safe_load(text) if text.strip() else {}
    except yaml.YAMLError as error:
        raise InvalidArgumentsError(f"trainer.customConfigYaml: {' '.join(str(error).split())}") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, Mapping):
        raise InvalidArgumentsError("trainer.customConfigYaml must be a mapping of argument names to values")
    return loaded
