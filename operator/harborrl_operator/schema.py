"""Pydantic's JSON schema -> the structural OpenAPI schema that a CRD wants."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

_KEPT = (
    "type",
    "description",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "format",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
)


def structural_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Schema of `model` with references inlined, nullable unions unwrapped and no default for null."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(schema, schema.get("$defs", {}))


def _convert(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    node = _unwrap(node, definitions)
    types = sorted(option.get("type", "") for option in node.get("anyOf", ()))
    if types == ["integer", "string"]:
        # Numbers are judged by the bounds, texts by the pattern.
        rules = {key: option[key] for option in node["anyOf"] for key in _KEPT if key in option and key != "type"}
        return {"x-kubernetes-int-or-string": True, **rules, **_described(node)}
    out = {key: node[key] for key in _KEPT if key in node}
    for bound in ("Minimum", "Maximum"):
        # JSON schema has a number there, OpenAPI 3.0 a flag beside the bound.
        if f"exclusive{bound}" in node:
            out |= {bound.lower(): node[f"exclusive{bound}"], f"exclusive{bound}": True}
    if "description" in out:
        out["description"] = " ".join(out["description"].split())
    if "const" in node:
        out["enum"] = [node["const"]]
    if node.get("default") is not None:
        out["default"] = node["default"]
    if out.pop("x-kubernetes-preserve-unknown-fields", False):
        return {**out, "type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {**out, **_children(node, definitions)}


def _children(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Schemas of items, properties or free keys."""
    out: dict[str, Any] = {}
    if "items" in node:
        out["items"] = _convert(node["items"], definitions)
    if "properties" in node:
        out["properties"] = {name: _convert(child, definitions) for name, child in node["properties"].items()}
        if node.get("required"):
            out["required"] = list(node["required"])
    elif isinstance(node.get("additionalProperties"), Mapping):
        out["additionalProperties"] = _convert(node["additionalProperties"], definitions)
        if "maxProperties" in node:
            out["maxProperties"] = node["maxProperties"]
    return out


def _unwrap(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Follows $ref and `X | null`; what is said at the field ranks above what is said at the type."""
    merged = dict(node)
    options = [option for option in merged.get("anyOf", ()) if option.get("type") != "null"]
    if len(options) == 1:
        del merged["anyOf"]
        merged = {**options[0], **merged}
    elif options:
        merged["anyOf"] = options
    if "$ref" in merged:
        target = definitions[merged.pop("$ref").rsplit("/", 1)[1]]
        merged = {**_unwrap(target, definitions), **merged}
    elif len(options) == 1 and "anyOf" in merged:
        merged = _unwrap(merged, definitions)
    return merged


def _described(node: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": node["description"]} if "description" in node else {}
