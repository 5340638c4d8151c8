"""`recipeArgs`, `extraArgs` and `customConfigYaml`: read, and refused where Miles or the operator would refuse them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from harborrl_trainer.config.miles import split_arguments
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.launch.reserved import reserved_name
from harborrl_trainer.launch.seam import Adjustment
from harborrl_trainer.launch.versions import MilesVersion
from harborrl_trainer.launch.words import Argument, arguments_of, name_of

_COUNTED = ("--custom-generate-function-path", "--custom-agent-function-path")
"""Where HarborRL counts trials and maps their outcomes."""

NO_ABORTED = "miles.rollout.filter_hub.dynamic_sampling_filters.check_no_aborted"
"""Without it Miles' synchronous loop trains on aborted samples."""

_USERS_FUNCTIONS = (*_COUNTED, "--custom-rm-path", "--rollout-function-path", "--rollout-sample-filter-path")
"""Functions of the user's own may bring flags that no table knows."""

_ELSEWHERE = ("--sglang-", "--eval-sglang-", "--router-")
"""Flags of SGLang and of its router, whose tables may lack some that Miles' branches of them know."""

_SECRET = re.compile(
    r"(api[_-]?key|access_key|private_key|wandb_key|(hf|auth|access|api|bearer)_token|secret|password)$"
)


def raw_arguments(job: JobDocument, version: MilesVersion) -> tuple[list[Argument], list[Adjustment]]:
    """Both raw texts in their order; ConfigurationError names field, flag and remedy."""
    arguments: list[Argument] = []
    remarks: list[Adjustment] = []
    for field, text in (("trainer.recipeArgs", job.recipe_args), ("trainer.extraArgs", job.extra_args)):
        try:
            words = split_arguments(text)
        except ValueError as error:
            raise ConfigurationError(f"{field}: {error}; close the quote, or remove it") from None
        for argument in arguments_of(words):
            remarks += _checked(field, argument, version, free=_has_own_functions(words))
            arguments.append(argument)
    return arguments, remarks


def _has_own_functions(words: list[str]) -> bool:
    return any(word.partition("=")[0] in _USERS_FUNCTIONS for word in words)


def _checked(field: str, argument: Argument, version: MilesVersion, *, free: bool) -> Iterator[Adjustment]:
    flag = argument.flag
    if not flag:
        raise ConfigurationError(f"{field}: '{argument.values[0]}' follows no flag; write --name before its value")
    if home := reserved_name(flag):
        raise ConfigurationError(f"{field}: {flag} is decided by {home}; remove it")
    if _SECRET.search(name_of(flag)):
        raise ConfigurationError(f"{field}: {flag} looks like a secret; give it by trainer.env with secretKeyRef")
    if not version.knows(flag):
        yield _unknown(field, flag, version, free=free)
        return
    _check_values(field, argument, version.kind(flag) or "str")
    if flag in _COUNTED:
        reason = "replaces HarborRL's function: its counters, outcomes and second tries are gone with it"
        yield Adjustment(f"{field}: {flag}", argument.values[0], reason)
    if flag == "--dynamic-sampling-filter-path" and argument.values[0] != NO_ABORTED:
        reason = "replaces Miles' check_no_aborted: in mode sync it must drop groups with aborted samples by itself"
        yield Adjustment(f"{field}: {flag}", argument.values[0], reason)


def _unknown(field: str, flag: str, version: MilesVersion, *, free: bool) -> Adjustment:
    like = version.nearest(flag)
    meant = f"; did you mean {like}?" if like else ""
    if free or flag.startswith(_ELSEWHERE):
        reason = f"not among the flags known of Miles {version.short}{meant} The image's own parser decides"
        return Adjustment(f"{field}: {flag}", "kept", reason)
    raise ConfigurationError(f"{field}: Miles {version.short} knows no flag {flag}{meant or '; remove it'}")


def _check_values(field: str, argument: Argument, kind: str) -> None:
    count, given = len(argument.values), " ".join(argument.values)
    if kind == "bare" and count:
        raise ConfigurationError(f"{field}: {argument.flag} takes no value, and '{given}' follows it; remove that")
    if not kind.endswith(("+", "?")) and kind != "bare":
        wanted = int(kind.partition("*")[2] or 1)
        if count != wanted:
            raise ConfigurationError(f"{field}: {argument.flag} takes {wanted} value(s) and has {count}; correct it")
    number = {"int": int, "float": float}.get(re.split(r"[+?*]", kind)[0])
    for value in argument.values if number else ():
        try:
            number(value)  # type: ignore[misc] # the loop is empty without one
        except ValueError:
            said = "a whole number" if number is int else "a number"
            raise ConfigurationError(f"{field}: {argument.flag} takes {said}, not '{value}'; correct it") from None


def custom_config(job: JobDocument, version: MilesVersion) -> tuple[dict[Any, Any], list[Adjustment]]:
    """The YAML's values, which Miles sets after its own checks; unknown names are kept and remarked on."""
    values = _mapping(job.custom_config_yaml)
    remarks: list[Adjustment] = []
    for key in values:
        if not isinstance(key, str) or not key.isidentifier():
            better = str(key).removeprefix("--").replace("-", "_")
            raise ConfigurationError(
                f"trainer.customConfigYaml: Miles sets attributes by name and would never read '{key}'; write {better}"
            )
        if home := reserved_name(key):
            raise ConfigurationError(f"trainer.customConfigYaml: {key} is decided by {home}; remove it")
        if _SECRET.search(key):
            raise ConfigurationError(
                f"trainer.customConfigYaml: {key} looks like a secret; give it by trainer.env with secretKeyRef"
            )
        if not version.knows("--" + key.replace("_", "-")):
            like = version.nearest("--" + key.lower().replace("_", "-"))
            meant = f"; did you mean {name_of(like)}?" if like else ""
            reason = f"no argument of Miles {version.short}: only a custom function can read it{meant}"
            remarks.append(Adjustment(f"trainer.customConfigYaml: {key}", "kept", reason))
    return values, remarks


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
