"""Kubernetes quantities, as far as Ray's start parameters need them."""

import math

from harborrl_operator.models.trainer import Resources


def whole_cpus(wanted: Resources | None) -> int | None:
    """CPUs of a container rounded up, its limit before its request; None when neither is stated."""
    if wanted is None:
        return None
    stated = wanted.limits.get("cpu", wanted.requests.get("cpu"))
    if stated is None:
        return None
    text = str(stated)
    return math.ceil(float(text[:-1]) / 1000) if text.endswith("m") else math.ceil(float(text))
