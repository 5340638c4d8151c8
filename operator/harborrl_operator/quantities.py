"""Kubernetes quantities, as far as we compute with them."""

import math
from decimal import Decimal

from harborrl_operator.models.trainer import Resources

_POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: dict[str, int] = {f"{prefix}i": 1024 ** (index + 1) for index, prefix in enumerate("KMGTPE")}


def whole_cpus(wanted: Resources | None) -> int | None:
    """A container's CPU limit rounded up, None without one: a request is a floor and says nothing of what is there."""
    stated = wanted.limits.get("cpu") if wanted else None
    return None if stated is None else math.ceil(amount(str(stated)))


def amount(quantity: str) -> Decimal:
    """`quantity` is what models.trainer.Quantity lets in."""
    if quantity[-2:] in _BINARY:
        return Decimal(quantity[:-2]) * Decimal(_BINARY[quantity[-2:]])
    if quantity[-1] in _POWERS:
        scaled: Decimal = Decimal(quantity[:-1]).scaleb(_POWERS[quantity[-1]])
        return scaled
    return Decimal(quantity)
