"""`recipeArgs`, `extraArgs` and `customConfigYaml`: read, and refused where Miles or the operator would refuse them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from harborrl_trainer.config.miles import split_arguments
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.launch.remarks import remarks
from harborrl_trainer.launch.rules.reserved import reserved_flag, reserved_key
from harborrl_trainer.launch.seam import Adjustment
from harborrl_trainer.launch.values import check_setting, check_words
from harborrl_trainer.launch.versions import MilesVersion
from harborrl_trainer.launch.words import Argument, arguments_of, name_of

_USERS_FUNCTIONS = (
    "--custom-generate-function-path",
    "--custom-agent-function-path",
    "--custom-rm-path",
    "--rollout-function-path",
    "--rollout-sample-filter-path",
)
"""Functions of the user's own may bring flags that no table knows."""

_ELSEWHERE = ("--sglang-", "--eval-sglang-", "--router-")
"""Flags of SGLang and of its router, whose tables may lack some that Miles' branches of them know."""

_SECRET = re.compile(
    r"(api[_-]?key|access_key|private_key|wandb_key|(hf|auth|access|api|bearer)_token|secret|password)$"
)


def raw_arguments(job: JobDocument, version: MilesVersion) -> tuple[list[Argument], list[Adjustment]]:
    """Both raw texts in their order; ConfigurationError names field, flag and remedy."""
    arguments: list[Argument] = []
    said: list[Adjustment] = []
    for field, text in (("trainer.recipeArgs", job.recipe_args), ("trainer.extraArgs", job.extra_args)):
        try:
            words = split_arguments(text)
        except ValueError as error:
            raise ConfigurationError(f"{field}: {error}; close the quote, or remove it") from None
        for argument in arguments_of(words):
            if home := reserved_flag(argument.flag, evaluates=job.eval is not None):
                raise ConfigurationError(f"{field}: {argument.flag} is decided by {home}; remove it")
            said += _checked(field, argument, version, free=_has_own_functions(words))
            arguments.append(argument)
    return arguments, said


def _has_own_functions(words: list[str]) -> bool:
    return any(word.partition("=")[0] in _USERS_FUNCTIONS for word in words)


def _checked(field: str, argument: Argument, version: MilesVersion, *, free: bool) -> Iterator[Adjustment]:
    flag = argument.flag
    if not flag:
        raise ConfigurationError(f"{field}: '{argument.values[0]}' follows no flag; write --name before its value")
    if _SECRET.search(name_of(flag)):
        raise ConfigurationError(f"{field}: {flag} looks like a secret; give it by trainer.env with secretKeyRef")
    if not version.knows(flag):
        yield _unknown(field, flag, version, free=free)
        return
    check_words(field, argument, version.kind(flag) or "str")
    yield from remarks(f"{field}: {flag}", name_of(flag), " ".join(argument.values))


def _unknown(field: str, flag: str, version: MilesVersion, *, free: bool) -> Adjustment:
    like = version.nearest(flag)
    meant = f"; did you mean {like}?" if like else ""
    if free or flag.startswith(_ELSEWHERE):
        reason = f"not among the flags known of Miles {version.short}{meant or '.'} The image's own parser decides"
        return Adjustment(f"{field}: {flag}", "kept", reason)
    raise ConfigurationError(f"{field}: Miles {version.short} knows no flag {flag}{meant or '; remove it'}")


def custom_config(job: JobDocument, version: MilesVersion) -> tuple[dict[Any, Any], list[Adjustment]]:
    """The YAML's values, which Miles sets after its own checks; unknown names are kept and remarked on."""
    values = _mapping(job.custom_config_yaml)
    said: list[Adjustment] = []
    for key in values:
        _check_name(key)
        if home := reserved_key(key, evaluates=job.eval is not None):
            raise ConfigurationError(f"trainer.customConfigYaml: {key} is decided by {home}; remove it")
        if _SECRET.search(key):
            raise ConfigurationError(
                f"trainer.customConfigYaml: {key} looks like a secret; give it by trainer.env with secretKeyRef"
            )
        flag = version.setting(key)
        if flag is None:
            said.append(_no_attribute(key, version))
        else:
            check_setting("trainer.customConfigYaml", key, values[key], version.kind(flag) or "str")
        said += remarks(f"trainer.customConfigYaml: {key}", key, values[key])
    return values, said


def _no_attribute(key: str, version: MilesVersion) -> Adjustment:
    """ConfigurationError for a flag's name whose value Miles keeps under another."""
    named = "--" + key.replace("_", "-")
    if named in version.attributes:
        raise ConfigurationError(
            f"trainer.customConfigYaml: {named} sets {version.attributes[named]}, and Miles would never read '{key}';"
            f" set {version.attributes[named]}"
        )
    like = version.nearest("--" + key.lower().replace("_", "-"))
    meant = f"; did you mean {version.attributes.get(like, name_of(like))}?" if like else ""
    reason = f"no argument of Miles {version.short}: only a custom function can read it{meant}"
    return Adjustment(f"trainer.customConfigYaml: {key}", "kept", reason)


def _check_name(key: object) -> None:
    if isinstance(key, str) and key.isidentifier():
        return
    better = str(key).removeprefix("--").replace("-", "_")
    if not isinstance(key, str) or not better.isidentifier():
        raise ConfigurationError(
            f"trainer.customConfigYaml: Miles sets attributes by name, and {key!r} is none; remove it"
        )
    raise ConfigurationError(
        f"trainer.customConfigYaml: Miles sets attributes by name and would never read '{key}'; write {better}"
    )


def _mapping(text: str) -> dict[Any, Any]:
    try:
        loaded = yaml.safe_load(text) if text.strip() else {}
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigurationError(f"trainer.customConfigYaml: {line}{error.problem or 'no YAML'}; correct it") from None
    except (ValueError, KeyError, RecursionError, yaml.YAMLError) as error:
        # PyYAML's own constructors raise the first three.
        raise ConfigurationError(f"trainer.customConfigYaml: {type(error).__name__}; correct it") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, Mapping):
        raise ConfigurationError("trainer.customConfigYaml: must be a mapping of argument names to values; correct it")
    return dict(loaded)
