"""Reads and completes an argv that the launch made: values of flags, and what only Miles' own file can say."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.launch.seam import Launch

CONFIG_FLAG = "--custom-config-path"
CONFIG_FILE = "harborrl-overrides.yaml"
WAYS = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
)


def value_of(argv: Sequence[str], flag: str) -> str | None:
    """Of the last occurrence, as argparse has it; None when the flag is absent or stands alone."""
    found = None
    for index, token in enumerate(argv):
        name, equals, value = token.partition("=")
        if name == flag:
            following = argv[index + 1] if index + 1 < len(argv) else "--"
            found = value if equals else None if following.startswith("--") else following
    return found


def has_flag(argv: Sequence[str], flag: str) -> bool:
    return any(token.partition("=")[0] == flag for token in argv)


def setting(launch: Launch, name: str) -> Any:
    """An argument as Miles will see it: its configuration file ranks above the flags. None where nobody sets it."""
    from_file = _config(launch).get(name)
    return value_of(launch.argv, "--" + name.replace("_", "-")) if from_file is None else from_file


def ways(launch: Launch) -> dict[str, int]:
    """How the model is split: what decides which shard a rank holds."""
    said = {name: str(setting(launch, name)) for name in WAYS}
    tensor, pipeline, expert, within = (int(size) if size.isdecimal() else None for size in said.values())
    # Unset, Megatron splits an expert as it splits the rest.
    return dict(zip(WAYS, (tensor or 1, pipeline or 1, expert or 1, within or tensor or 1), strict=True))


def with_settings(launch: Launch, settings: Mapping[str, Any], folder: Path) -> Launch:
    """The launch with `settings` in Miles' configuration file, which is read after Miles has judged its arguments.

    Only there does a first rollout hold: where Miles finds no tracker file, or in `bridge` mode at 9a00364 always, it
    puts `--start-rollout-id` back to 0.
    """
    if not settings:
        return launch
    path = value_of(launch.argv, CONFIG_FLAG) or str(folder / CONFIG_FILE)
    # Not as JSON: YAML takes its 2e-06 for a string.
    text = yaml.safe_dump({**_config(launch), **settings}, sort_keys=False, allow_unicode=True)
    argv = launch.argv if value_of(launch.argv, CONFIG_FLAG) else (*launch.argv, CONFIG_FLAG, path)
    return replace(launch, argv=argv, files={**launch.files, path: text})


def _config(launch: Launch) -> dict[str, Any]:
    path = value_of(launch.argv, CONFIG_FLAG)
    if path is None or path not in launch.files:
        return {}
    try:
        document = yaml.safe_load(launch.files[path]) or {}
    except yaml.YAMLError as error:
        raise ConfigurationError(f"trainer.customConfigYaml: {error}; give a mapping of Miles' arguments") from error
    if not isinstance(document, dict):
        raise ConfigurationError("trainer.customConfigYaml: is no mapping; give one of Miles' arguments")
    return document
