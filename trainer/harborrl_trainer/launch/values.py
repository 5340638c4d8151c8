"""Whether Miles can take an argument's value: its kind, its choices, and the bounds of `trainer.config`."""

import dataclasses
import difflib
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from harborrl_trainer.config import HarborFrameworkConfig
from harborrl_trainer.config.about import About
from harborrl_trainer.config.miles import about
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.launch.rules.rule import Values, flag
from harborrl_trainer.launch.versions import MilesVersion
from harborrl_trainer.launch.words import Argument

_ONE = About("cluster", least=1)
_MORE_BOUNDS: Mapping[str, About] = dict.fromkeys(
    (
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "context_parallel_size",
        "expert_model_parallel_size",
        "expert_tensor_parallel_size",
        "rollout_num_gpus_per_engine",
        "max_tokens_per_gpu",
        "n_samples_per_eval_prompt",
    ),
    _ONE,
)
_OF_THE_CRD = 1_000_000
"""Upper bound of its whole numbers, by which its rules cost; Miles has none, and models of 1,048,576 positions run."""
_MAY_BE_UNSET = frozenset({"eval_interval", "max_tokens_per_gpu"})
"""null in the YAML is Miles' own default."""
_NUMBERS = {"int": int, "float": float}


def check_words(field: str, argument: Argument, kind: str) -> None:
    """Words of a command line against the flag's kind; ConfigurationError with field, flag and remedy."""
    given = " ".join(argument.values)
    if kind == "bare" and argument.values:
        raise ConfigurationError(f"{field}: {argument.flag} takes no value, and '{given}' follows it; remove that")
    if not kind.endswith(("+", "?")) and kind != "bare":
        wanted, found = int(kind.partition("*")[2] or 1), len(argument.values)
        if found != wanted:
            raise ConfigurationError(f"{field}: {argument.flag} takes {wanted} value(s) and has {found}; correct it")
    number = _NUMBERS.get(_base(kind))
    for value in argument.values if number else ():
        if not _is_number(value, number or float):
            raise ConfigurationError(f"{field}: {argument.flag} takes {_said(kind)}, not '{value}'; correct it")


def check_setting(field: str, name: str, value: Any, kind: str) -> None:
    """A value of the YAML, which Miles sets as it is read: what looks like a number may be text."""
    number = _NUMBERS.get(_base(kind))
    if value is None or (number is None and kind != "bare"):
        return
    if kind == "bare":
        if not isinstance(value, bool):
            raise ConfigurationError(f"{field}: {name} takes true or false, not {value!r}; correct it")
        return
    several = kind != _base(kind) and isinstance(value, list)
    for one in value if several else (value,):
        if isinstance(one, str) and _is_number(one, float):
            raise ConfigurationError(f"{field}: {name} is the text '{one}' to Miles' YAML reader; write {_plain(one)}")
        if type(one) not in (int, number) or math.isnan(one):
            raise ConfigurationError(f"{field}: {name} takes {_said(kind)}, not {one!r}; correct it")


def unfit(values: Values, version: MilesVersion) -> str | None:
    """The first effective value that is outside of its choices or bounds, with the way out."""
    return next(_unfit(values, version), None)


def _unfit(values: Values, version: MilesVersion) -> Iterator[str]:
    for name, value in values.items():
        choices = version.choices.get(flag(name), ())
        for word in value if isinstance(value, tuple | list) else (value,):
            if choices and word is not None and str(word) not in choices:
                like = difflib.get_close_matches(str(word), choices, 1, 0.6)
                meant = f"; did you mean {like[0]}?" if like else "; choose one"
                yield f"{flag(name)} {word} is none of {', '.join(choices)}{meant}"
    for name, bounds in {**_bounds(), **_MORE_BOUNDS}.items():
        if values.get(name) is None and name in _MAY_BE_UNSET:
            continue
        if name in values and (broken := _beyond(values[name], bounds)):
            yield f"{flag(name)} {values[name]} must be {broken}; correct it"


def _bounds() -> dict[str, About]:
    fields = {field.name: about(field) for field in dataclasses.fields(HarborFrameworkConfig)}
    bounded = {name: one for name, one in fields.items() if one.least is not None or one.above is not None}
    return {
        name: dataclasses.replace(one, most=None) if one.most == _OF_THE_CRD else one for name, one in bounded.items()
    }


def _beyond(value: Any, bounds: About) -> str:
    """What the number must be, empty where it is."""
    limits = {"at least": bounds.least, "above": bounds.above, "at most": bounds.most, "below": bounds.below}
    said = " and ".join(f"{word} {limit:.15g}" for word, limit in limits.items() if limit is not None)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return f"a number {said}"
    inside = (
        math.isfinite(number)
        and (bounds.least is None or number >= bounds.least)
        and (bounds.above is None or number > bounds.above)
        and (bounds.most is None or number <= bounds.most)
        and (bounds.below is None or number < bounds.below)
    )
    return "" if inside else said


def _base(kind: str) -> str:
    return re.split(r"[+?*]", kind)[0]


def _said(kind: str) -> str:
    return "a whole number" if _base(kind) == "int" else "a number"


def _is_number(text: str, number: type[int] | type[float]) -> bool:
    try:
        return not math.isnan(number(text))
    except (ValueError, OverflowError):
        return False


def _plain(text: str) -> str:
    """As YAML 1.1 reads a number: `1.0e-06`, not `1e-6`."""
    number = float(text)
    if number.is_integer():
        return str(int(number))
    mantissa, exponent, power = str(number).partition("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}{exponent}{power}"
