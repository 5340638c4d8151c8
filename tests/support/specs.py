"""Specs drawn from the CRD's own schema: whatever the API server lets in, rules aside."""

from typing import Any

from hypothesis import strategies as st

from harborrl_operator.crd import custom_resource_definition

_TEXT = st.text(max_size=30)
_RAW = st.one_of(
    _TEXT,
    st.sampled_from(["--rollout-batch-size=4", "--global-batch-size 7", "'", "# c", "? [a]\n: b", "a: &a [*a]", "- 1"]),
    st.sampled_from(["!!bool x", "a: !!timestamp x", "a: 2001-99-99", "0: 1", "null: 2", "<<: 1", "!!set {a, b}"]),
)
_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), _TEXT)
_FREE = st.dictionaries(_TEXT, st.one_of(_SCALARS, st.lists(_SCALARS, max_size=2)), max_size=2)
_RAW_FIELDS = ("recipeArgs", "extraArgs", "customConfigYaml")


def admitted_specs() -> st.SearchStrategy[dict[str, Any]]:
    version = custom_resource_definition()["spec"]["versions"][0]
    return values_of(version["schema"]["openAPIV3Schema"]["properties"]["spec"], "spec")


def values_of(schema: dict[str, Any], name: str) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return st.one_of(
            st.integers(schema["minimum"], schema["maximum"]), st.from_regex(schema["pattern"], fullmatch=True)
        )
    if schema["type"] == "array":
        return st.lists(values_of(schema["items"], name), min_size=schema.get("minItems", 0), max_size=2)
    if schema["type"] == "object":
        return _object(schema)
    return _string(schema, name) if schema["type"] == "string" else _number(schema)


def _number(schema: dict[str, Any]) -> st.SearchStrategy[float]:
    if schema["type"] == "boolean":
        return st.booleans()
    low, high = schema.get("minimum", -(10**9)), schema.get("maximum", 10**9)
    if schema["type"] == "integer":
        return st.integers(low, high)
    open_low, open_high = "exclusiveMinimum" in schema, "exclusiveMaximum" in schema
    return st.floats(low, high, exclude_min=open_low, exclude_max=open_high)


def _string(schema: dict[str, Any], name: str) -> st.SearchStrategy[str]:
    if name in _RAW_FIELDS:
        return _RAW
    if "pattern" in schema:
        shortest, longest = schema.get("minLength", 0), schema.get("maxLength", 64)
        drawn = st.from_regex(schema["pattern"], fullmatch=True).map(lambda text: text.strip()[:longest])
        return drawn.filter(lambda text: len(text) >= shortest)
    return st.text(min_size=schema.get("minLength", 0), max_size=30)


def _object(schema: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    if "additionalProperties" in schema:
        return st.dictionaries(
            st.sampled_from(["cpu", "memory"]), values_of(schema["additionalProperties"], ""), max_size=2
        )
    if "properties" not in schema:
        return _FREE
    fields = {name: values_of(field, name) for name, field in schema["properties"].items()}
    required = {name: fields.pop(name) for name in schema.get("required", ())}
    return st.fixed_dictionaries(required, optional=fields)
