"""Label selectors as an API server reads them: what the operator asks by, and nothing it does not."""

import re
from collections.abc import Mapping
from typing import Any

_TERM = re.compile(r"(?P<name>[\w./-]+)(?:=(?P<value>[\w./-]*)| in \((?P<values>[^)]*)\))?(?:,|$)")


def selects(selector: str, thing: Mapping[str, Any]) -> bool:
    """`name`, `name=value` and `name in (a,b)`, joined by commas; anything else fails."""
    labels: Mapping[str, str] = thing["metadata"].get("labels") or {}
    position = 0
    while position < len(selector):
        term = _TERM.match(selector, position)
        assert term is not None, f"not understood: {selector[position:]}"
        position, has = term.end(), labels.get(term["name"])
        if term["values"] is not None:
            is_met = has in term["values"].split(",")
        else:
            is_met = has is not None if term["value"] is None else has == term["value"]
        if not is_met:
            return False
    return True
