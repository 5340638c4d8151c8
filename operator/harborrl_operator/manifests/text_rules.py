"""The CRD's rules on single texts, asked without an API server: CEL for it, Python here, the message from the CRD."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_LEADS_OUT = re.compile(r"(^|/)[.][.](/|$)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

BROKEN: Mapping[str, Callable[[str], bool]] = {
    "!self.matches('(^|/)[.][.](/|$)')": lambda text: bool(_LEADS_OUT.search(text)),
    "!self.matches('[[:cntrl:]]')": lambda text: bool(_CONTROL.search(text)),
    "!self.startsWith('/') && !self.matches('(^|/)[.][.](/|$)')": lambda text: (
        text.startswith("/") or bool(_LEADS_OUT.search(text))
    ),
}
"""Rule of the CRD -> whether a text breaks it."""


def broken(text: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """Messages of the rules in `schema` that `text` breaks."""
    for rule in schema.get("x-kubernetes-validations", ()):
        if BROKEN[rule["rule"]](text):
            yield rule["message"]
