"""What one rule over a command line is, how its values are read, and the forms that many rules have."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Values = Mapping[str, Any]
"""By name in snake_case: text, numbers (of typed fields and of the YAML), true for a bare flag, tuples."""

_OFF = (None, False, 0, 0.0, "", "0", "0.0", "0.00", "false", "False")


@dataclass(frozen=True)
class Rule:
    """`broken` of the effective values; `says` is formatted with them."""

    broken: Callable[[Values], bool]
    says: str


def first_broken(rules: Iterable[Rule], values: Values) -> str | None:
    """The sentence of the first rule that the values break."""
    for rule in rules:
        if rule.broken(values):
            return rule.says.format_map(_Shown(values))
    return None


class _Shown(dict[str, Any]):
    def __missing__(self, name: str) -> str:
        return "(unset)"


def on(values: Values, *names: str) -> bool:
    return all(values.get(name) not in _OFF for name in names)


def number(values: Values, name: str, otherwise: float = 0) -> float:
    try:
        return float(values.get(name, otherwise))
    except (TypeError, ValueError, OverflowError):
        return otherwise


def count(values: Values, name: str, otherwise: int = 1) -> int:
    found = number(values, name, otherwise)
    return int(found) if math.isfinite(found) else otherwise


def ways(values: Values, name: str) -> int:
    """A size that something is split by."""
    return max(count(values, name), 1)


def samples(values: Values) -> int:
    """Of one rollout."""
    return count(values, "rollout_batch_size", 0) * count(values, "n_samples_per_prompt")


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def equals(name: str, value: str) -> Callable[[Values], bool]:
    return lambda values: values.get(name) == value


def both(*names: str) -> Callable[[Values], bool]:
    return lambda values: on(values, *names)


def set_to(name: str, value: str, other: str) -> Callable[[Values], bool]:
    """`name` has that value, and `other` is on."""
    return lambda values: values.get(name) == value and on(values, other)


def without(name: str, *needed: str) -> Callable[[Values], bool]:
    """`name` is on, and none of `needed` is."""
    return lambda values: on(values, name) and not any(on(values, need) for need in needed)


def excludes(name: str, *others: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(both(name, other), f"{flag(name)} and {flag(other)} exclude each other; remove one") for other in others
    )
