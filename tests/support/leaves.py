"""Every field of the spec that holds a value, from the CRD's own schema, and another valid value for each."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harborrl_operator.crd import custom_resource_definition
from harborrl_operator.frozen import EXCEPT, FROZEN, PARTLY
from support import hrl

SPEC = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]

FULL_SPEC = hrl.merged(
    hrl.DESIGN_SPEC,
    {
        "workloadPriorityClass": "high",
        "resumeFrom": {"path": "research/x-1/a1/i1/checkpoints/iter_0000001"},
        "trainer.rdma": {},
        "trainer.recipeArgs": "--rollout-batch-size 4",  # the rule on slots leaves the comparison to the operator
        "agentServer.resources": {"requests": {"cpu": 1}},
    },
)
"""Each optional part is there, so that one field of it can change alone."""

ALONE: Mapping[str, dict[str, Any]] = {
    "data.tasks.root": {"data": {"tasks": {"root": "other"}}},
    "data.tasks.glob": {"data": {"tasks": {"glob": "b*"}}},
    "data.tasks.instructionPath": {"data": {"tasks": {"instructionPath": "b.md"}}},
    "resumeFrom.job": {"resumeFrom": {"job": "other"}},
    "trainer.topology.required": {"trainer.topology": {"required": "rack"}},
    "trainer.customConfigYaml": {"trainer.customConfigYaml": "seed: 7"},
    "agentServer.allowedAgents": {"agentServer.allowedAgents": ["bash", "nop"]},
    "agentServer.sandbox.backend": {"agentServer.sandbox.backend": "docker"},
}
"""Changes of fields that exclude another one, or of which the generated value is refused for its own sake."""

_WORDS = ("other", "Other", "10.0.0.0/8", "http://agents.team.svc:30000", "pkg.mod:Class")


def leaves(schema: Mapping[str, Any] = SPEC, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Dotted path and schema; lists and free maps are one value each."""
    for name, child in schema["properties"].items():
        if child.get("properties"):
            yield from leaves(child, f"{path}{name}.")
        else:
            yield f"{path}{name}", child


LEAVES = dict(leaves())


def change_of(path: str) -> dict[str, Any]:
    """What turns FULL_SPEC into one that differs in this field."""
    if path in ALONE:
        return ALONE[path]
    value: Any = FULL_SPEC
    for name in path.split("."):
        value = value.get(name, {}) if isinstance(value, Mapping) else {}
    now = LEAVES[path].get("default") if value == {} else value
    return {path: _another(LEAVES[path], now)}


def _another(schema: Mapping[str, Any], now: Any) -> Any:
    if "enum" in schema:
        return next(value for value in schema["enum"] if value != now)
    if schema.get("x-kubernetes-int-or-string"):
        return "3Gi"
    return _OF_TYPE[schema["type"]](schema, now)


def _string(schema: Mapping[str, Any], now: Any) -> str:
    fits = re.compile(schema.get("pattern", ""))
    return next(word for word in _WORDS if fits.search(word) and word != now)


def _number(schema: Mapping[str, Any], now: float | None) -> float:
    low, high = schema.get("minimum", 0), schema.get("maximum", 10**6)
    if schema["type"] == "number":
        return float(next(value for value in (0.25, 0.5) if value != now))
    return int(low + 1 if now is None else now - 1 if now > low else min(now + 1, high))


def _object(schema: Mapping[str, Any], _: Any) -> dict[str, Any]:
    if "properties" in schema:
        needed = schema.get("required", ())
        return {name: _another(field, None) for name, field in schema["properties"].items() if name in needed}
    return (
        {"other": _another(schema["additionalProperties"], None)} if "additionalProperties" in schema else {"other": 1}
    )


_OF_TYPE: Mapping[str, Callable[[Mapping[str, Any], Any], Any]] = {
    "array": lambda schema, _: [_another(schema["items"], None)],
    "boolean": lambda _, now: not now,
    "integer": _number,
    "number": _number,
    "object": _object,
    "string": _string,
}


def is_frozen(path: str) -> bool:
    """Whether the API server refuses its change while an attempt runs."""
    part, _, field = path.partition(".")
    if part in EXCEPT:
        return field.split(".")[0] not in EXCEPT[part]
    return part in FROZEN or field.split(".")[0] in PARTLY.get(part, ())
