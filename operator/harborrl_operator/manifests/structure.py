"""What the API server says of an object's form: the CRD's own schema, every fault and not the first alone.

Covers the keywords that `harborrl_operator.schema` lets into the CRD (a test compares them).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from harborrl_operator.manifests import text_rules
from harborrl_operator.manifests.fault import Fault
from harborrl_operator.manifests.places import advice

type Schema = Mapping[str, Any]

NAMED = 20
"""Unknown fields of one object that are named: a file of nothing else is no manifest."""

_TYPES: Mapping[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


def faults(value: Any, schema: Schema, path: str, root: Schema | None = None) -> Iterator[Fault]:
    """Faults of `value`; those of a part with the wrong type hide what is below it. `root`: schema of all fields."""
    root = schema if root is None else root
    if value is None:
        yield Fault(path, "is null; give it a value, or leave it out")
        return
    if schema.get("x-kubernetes-int-or-string"):
        if type(value) not in (int, str):
            yield Fault(path, f"is {_kind(value)}, must be a whole number or a text")
        else:
            yield from _scalar(value, schema, path)
        return
    expected = str(schema.get("type", ""))
    if expected and not _is(value, expected):
        yield Fault(path, f"is {_kind(value)}, must be {_ARTICLE[expected]}{_quoted_hint(value, expected)}")
        return
    yield from _scalar(value, schema, path)
    if isinstance(value, dict):
        yield from _object(value, schema, path, root)
    if isinstance(value, list):
        yield from _sized(len(value), schema, path, "items", "Items")
        for at, item in enumerate(value):
            yield from faults(item, schema.get("items", {}), f"{path}[{at}]", root)


def pruned(value: Any, schema: Schema) -> Any:
    """As the API server stores it: without fields that are null."""
    if isinstance(value, list):
        return [pruned(one, schema.get("items", {})) for one in value]
    known, free = schema.get("properties"), schema.get("additionalProperties")
    if not isinstance(value, dict) or (known is None and not isinstance(free, Mapping)):
        return value
    if known is None:
        return {name: pruned(part, free or {}) for name, part in value.items()}
    return {name: pruned(part, known[name]) for name, part in value.items() if part is not None and name in known}


def _object(value: Mapping[Any, Any], schema: Schema, path: str, root: Schema) -> Iterator[Fault]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    known, free = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if value.get(name) is None:
            yield Fault(f"{path}.{name}", "is required; add it")
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield Fault(path, f"has {len(value)} entries, may have at most {schema['maxProperties']}; remove some")
    if known and not isinstance(free, Mapping):
        yield from _unknown([name for name in value if name not in known], path, known, root)
    for name, part in value.items():
        where = f"{path}.{name}"
        if name in known:
            # A field that is null is pruned, as if it had been left out.
            if part is not None:
                yield from faults(part, known[name], where, root)
        elif isinstance(free, Mapping):
            yield from faults(part, free, where, root)


def _unknown(names: list[Any], path: str, known: Schema, root: Schema) -> Iterator[Fault]:
    for name in names[:NAMED]:
        yield Fault(f"{path}.{name}", f"is no field of a HarborRLJob; {advice(str(name), path, known, root)}")
    if len(names) > NAMED:
        yield Fault(path, f"has {len(names) - NAMED} more that are no field of a HarborRLJob; remove them")


def _scalar(value: Any, schema: Schema, path: str) -> Iterator[Fault]:
    if "enum" in schema and value not in schema["enum"]:
        yield Fault(path, f"is {_shown(value)}, must be one of {', '.join(map(str, schema['enum']))}")
    if isinstance(value, str):
        yield from _text(value, schema, path)
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum"), schema.get("maximum")
        if low is not None and (value <= low if schema.get("exclusiveMinimum") else value < low):
            word = "above" if schema.get("exclusiveMinimum") else "at least"
            yield Fault(path, f"is {value}, must be {word} {low}")
        if high is not None and (value >= high if schema.get("exclusiveMaximum") else value > high):
            word = "below" if schema.get("exclusiveMaximum") else "at most"
            yield Fault(path, f"is {value}, must be {word} {high}")


def _text(value: str, schema: Schema, path: str) -> Iterator[Fault]:
    yield from _sized(len(value), schema, path, "characters", "Length")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield Fault(path, f"is {_shown(value)}, must match {schema['pattern']}")
    for message in text_rules.broken(value, schema):
        yield Fault(path, f"is {_shown(value)}: {message}")


def _sized(size: int, schema: Schema, path: str, what: str, keyword: str) -> Iterator[Fault]:
    low, high = schema.get(f"min{keyword}"), schema.get(f"max{keyword}")
    if low is not None and size < low:
        yield Fault(path, f"has {size} {what}, must have at least {low}")
    if high is not None and size > high:
        yield Fault(path, f"has {size} {what}, may have at most {high}")


def _is(value: Any, expected: str) -> bool:
    if expected == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[expected]) and (expected == "boolean" or not isinstance(value, bool))


_ARTICLE = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "object": "an object",
    "string": "a text",
}


def _kind(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return f"{'the text ' if isinstance(value, str) else ''}{_shown(value)}"


def _quoted_hint(value: Any, expected: str) -> str:
    if expected == "string" and isinstance(value, bool | int | float):
        return "; put it in quotes"
    unquoted = isinstance(value, str) and expected in ("integer", "number", "boolean")
    return "; remove the quotes" if unquoted and re.fullmatch(r"-?[0-9.]+|true|false", value) else ""


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
