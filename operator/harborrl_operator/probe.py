"""Which fields of a manifest an installed CRD knows. The API server drops the others without a word.

KubeRay's versions differ in what they take, and its CRD may be older than its program: Helm does not update CRDs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
"""OpenAPI v3 as a CRD carries it: structural, so that a field is known or it is not."""

DROPPABLE = frozenset({"enableServiceLinks", "fsGroupChangePolicy", "terminationMessagePolicy"})
"""Fields without which a job runs as well, only less tidily. Any other that is not known refuses the manifest."""

_FREE = "x-kubernetes-preserve-unknown-fields"
_OURS = ("apiVersion", "kind", "metadata")
"""Of every object, whatever its schema says."""


@dataclass(frozen=True)
class Fitted:
    """A manifest as this CRD takes it."""

    manifest: dict[str, Any]
    dropped: tuple[str, ...]
    """Paths of unknown fields that were left out."""
    missing: tuple[str, ...]
    """Paths of unknown fields that the job needs: with one of them the manifest must not be sent."""


def schema_of(crd: Mapping[str, Any], version: str) -> Schema | None:
    """The schema of a served version, None where the CRD does not serve it."""
    served = (one for one in crd["spec"]["versions"] if one["name"] == version and one["served"])
    found = next(served, None)
    return found["schema"]["openAPIV3Schema"] if found else None


def fit(schema: Schema, manifest: Mapping[str, Any]) -> Fitted:
    """`manifest` without what `schema` does not know; raises nothing."""
    unknown: list[str] = []
    fields = {name: value for name, value in manifest.items() if name not in _OURS}
    fitted = _object(schema, fields, "", unknown)
    dropped = tuple(path for path in unknown if _field(path) in DROPPABLE)
    missing = tuple(path for path in unknown if _field(path) not in DROPPABLE)
    return Fitted({**{name: manifest[name] for name in _OURS if name in manifest}, **fitted}, dropped, missing)


def _value(schema: Schema, value: Any, path: str, unknown: list[str]) -> Any:
    if schema.get(_FREE) and "properties" not in schema:
        return value
    if isinstance(value, Mapping):
        return _object(schema, value, path, unknown)
    if isinstance(value, Sequence) and not isinstance(value, str):
        items = schema.get("items", {})
        return [_value(items, one, f"{path}[{index}]", unknown) for index, one in enumerate(value)]
    return value


def _object(schema: Schema, value: Mapping[str, Any], path: str, unknown: list[str]) -> dict[str, Any]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    out: dict[str, Any] = {}
    for name, child in value.items():
        place = f"{path}.{name}" if path else name
        if name in known:
            out[name] = _value(known[name], child, place, unknown)
        elif isinstance(others, Mapping):
            out[name] = _value(others, child, place, unknown)
        elif others is True or schema.get(_FREE):
            out[name] = child
        else:
            unknown.append(place)
    return out


def _field(path: str) -> str:
    return path.rsplit(".", 1)[-1].split("[", 1)[0]
