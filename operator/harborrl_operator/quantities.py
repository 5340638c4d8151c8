"""Kubernetes quantities, as far as Ray's start parameters need them."""

import math

from harborrl_operator.models.trainer import Resources


def whole_cpus(wanted: Resources | None) -> int | None:
    """A container's CPU limit rounded up, None without one: a request is a floor and says nothing of what is there."""
    stated = wanted.limits.get("cpu") if wanted else None
    if stated is None:
        return None
    text = str(stated)
    return math.ceil(float(text[:-1]) / 1000) if text.endswith("m") else math.ceil(float(text))
