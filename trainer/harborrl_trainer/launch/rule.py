"""What one rule over a command line is, and how its values are read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Values = Mapping[str, Any]
"""By name in snake_case: text, numbers (of the YAML), true for a bare flag, tuples."""

_OFF = (None, False, 0, 0.0, "", "0", "0.0", "0.00", "false", "False")


@dataclass(frozen=True)
class Rule:
    """`broken` of the effective values; `says` is formatted with them."""

    broken: Callable[[Values], bool]
    says: str


def on(values: Values, *names: str) -> bool:
    return all(values.get(name) not in _OFF for name in names)


def number(values: Values, name: str, otherwise: float = 0) -> float:
    try:
        return float(values.get(name, otherwise))
    except (TypeError, ValueError):
        return otherwise


def count(values: Values, name: str, otherwise: int = 1) -> int:
    return int(number(values, name, otherwise))
