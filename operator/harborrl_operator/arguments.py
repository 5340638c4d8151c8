"""Raw engine flags and YAML, read as far as admission depends on them."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from harborrl_operator.argument_names import COUNTS, KNOWN
from harborrl_operator.manifests.reading import Counting
from harborrl_operator.miles_rules.reserved import reserved_flag, reserved_key
from harborrl_operator.models.trainer import TrainerSpec

LARGEST = 1_000_000_000
"""Far above any count that an engine takes, and small enough for every sum and product of counts."""


class InvalidArgumentsError(ValueError):
    """Raw flags or YAML that cannot be read; the message names the field."""


def parse_flags(text: str) -> list[str]:
    """HarborFrameworkConfig's rule: cut each line at the first `#`, drop empty lines, split as POSIX shell words."""
    lines = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return shlex.split("\n".join(line for line in lines if line))


def why_unsplit(text: str) -> str:
    """Line, reason and remedy of a text that `parse_flags` cannot split; never what stands there."""
    quote, opened, escaped, last = "", 0, False, 0
    lines = list(enumerate(text.splitlines(), 1))
    for number, line in lines:
        kept = line.split("#", 1)[0].strip()
        last = number if kept else last
        for sign in f"{kept}\n" if kept else "":
            if escaped:
                escaped = False
            elif sign == "\\" and quote != "'":
                escaped = True
            elif not quote and sign in "'\"":
                quote, opened = sign, number
            elif sign == quote:
                quote = ""
    if not quote:
        return f"line {last}: a backslash at the end joins no lines and has nothing to escape; leave it out"
    cut = next((number for number, line in lines[opened - 1 :] if quote in line.partition("#")[2]), None)
    if cut is None:
        return f"line {opened}: a quote is never closed; close it, or remove it"
    said = "'#' begins a comment, also inside quotes, and cuts off the end of the quote"
    return f"line {cut}: {said}; leave '#' out, or set the argument in trainer.customConfigYaml"


@dataclass(frozen=True)
class RawArguments:
    """What the raw layers say, the strongest layer wins."""

    values: Mapping[str, Any]
    """By argument name in snake_case; true for a bare flag, several values as a tuple."""
    counts: Mapping[str, int]
    """Those of COUNTS that are set."""
    reserved: tuple[str, ...]
    """Reserved flags that the user wrote, each with what decides it."""


def read_raw_arguments(trainer: TrainerSpec, *, evaluates: bool = False) -> RawArguments:
    """Reads recipeArgs < extraArgs < customConfigYaml; raises InvalidArgumentsError naming the field.

    `evaluates`: whether the job has `spec.eval`, which decides more flags.
    """
    values: dict[str, Any] = {}
    reserved: list[str] = []
    for field, text in (("recipeArgs", trainer.recipe_args), ("extraArgs", trainer.extra_args)):
        try:
            words = parse_flags(text)
        except ValueError:
            raise InvalidArgumentsError(f"trainer.{field}: {why_unsplit(text)}") from None
        for flag, value in _pairs(words):
            values[_full_name(flag)] = value
            if home := reserved_flag(flag, evaluates=evaluates):
                reserved.append(f"trainer.{field}: {flag} is decided by {home}")
    for key, value in _mapping(trainer.custom_config_yaml).items():
        values[_snake(str(key))] = value
        if home := reserved_key(str(key), evaluates=evaluates):
            reserved.append(f"trainer.customConfigYaml: {key} is decided by {home}")
    counts = {name: _count(name, values[name]) for name in COUNTS if values.get(name) is not None}
    return RawArguments(values=values, counts=counts, reserved=tuple(reserved))


def _count(name: str, value: Any) -> int:
    """Digits alone, at most ten: YAML also yields infinities, booleans and numbers that are too long to print."""
    count = int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,10}", value) else value
    if type(count) is int and 1 <= count <= LARGEST:
        return count
    said = repr(value)[:80] if isinstance(value, str | float | bool) else f"a {type(value).__name__}"
    raise InvalidArgumentsError(f"{name} must be an integer from 1 to {LARGEST}, it is {said}")


def _snake(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _full_name(flag: str) -> str:
    """As argparse completes a beginning: to the one name that begins so; what fits several it refuses itself."""
    name = _snake(flag)
    begun = [known for known in KNOWN if known.startswith(name)]
    return begun[0] if name not in KNOWN and name and len(begun) == 1 else name


def _pairs(words: list[str]) -> Iterator[tuple[str, Any]]:
    """Each flag with the words up to the next one."""
    flag, values = "", list[str]()
    for word in (*words, "--"):
        if not word.startswith("--"):
            values.append(word)
            continue
        if flag:
            yield flag, True if not values else values[0] if len(values) == 1 else tuple(values)
        flag, equals, value = word.partition("=")
        values = [value] if equals else []


_QUOTED = re.compile(r"(['\"]).*\1")
_SIGN = re.compile(r"'(<[a-z ]+>|[^\w\s'\"]{1,2}|\\t)'")
"""What PyYAML quotes and nobody has written: signs of YAML itself, a tab, the end of the text."""


def _without_text(error: yaml.MarkedYAMLError) -> str:
    """Line and problem, never the text that PyYAML quotes: a secret that stands there by mistake would reach status."""
    line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
    problem = _SIGN.sub(r"`\1`", error.problem or "is no YAML")
    advice = "write the value without its tag" if "constructor for the tag" in problem else "correct the YAML"
    return f"{line}{_QUOTED.sub('…', ' '.join(problem.split()))}; {advice}"


def _mapping(text: str) -> Mapping[str, Any]:
    try:
        loader = Counting(text)
        loaded = loader.get_single_data()
    except RecursionError:
        raise InvalidArgumentsError("trainer.customConfigYaml is nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        raise InvalidArgumentsError(f"trainer.customConfigYaml: {_without_text(error)}") from None
    except Exception as error:  # noqa: BLE001 - PyYAML's constructors raise anything: KeyError for `!!bool x`, say
        said = _QUOTED.sub("…", " ".join(str(error).split())) or type(error).__name__
        raise InvalidArgumentsError(f"trainer.customConfigYaml: {said}; correct the YAML") from None
    if loader.repeated:
        again = loader.repeated[0]
        raise InvalidArgumentsError(f"trainer.customConfigYaml: line {again.line}: {again.message}")
    if loaded is None:
        return {}
    if not isinstance(loaded, Mapping):
        raise InvalidArgumentsError("trainer.customConfigYaml must be a mapping of argument names to values")
    return loaded
