"""`agentServer.sandbox.podOverrides`: refused where they weaken a sandbox, else merged into its pod. Pure."""

from collections.abc import Mapping
from typing import Any

from harborrl_agent_server.sandboxes.override_rules import are_named, override_fault


def checked(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The same overrides; raises ValueError with one line for the first that a sandbox may not have."""
    if fault := override_fault(overrides):
        raise ValueError(fault)
    return dict(overrides)


def merged(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Objects merge, lists of named things merge by name, all else is replaced: as for the other pods of a job."""
    out = dict(base)
    for key, value in overrides.items():
        before = out.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            out[key] = merged(before, value)
        elif are_named(value) and are_named(before):
            wanted = {each["name"]: each for each in value}
            out[key] = [*(merged(each, wanted.pop(each["name"], {})) for each in before), *wanted.values()]
        else:
            out[key] = value
    return out


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def placed(spec: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """As `merged`, on nodes that suit both: of several terms any will do, so each of ours goes with each of theirs."""
    out = merged(spec, overrides)
    ours = node_terms(spec)
    if not ours:
        return out
    terms = [joined(one, other) for one in ours for other in node_terms(overrides) or [{}]]
    return merged(out, {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}})


def node_terms(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: Any = spec
    for key in ("affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, list) else []


def joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A term that wants what both want: its fields are lists of wishes."""
    return {key: [*one.get(key, ()), *other.get(key, ())] for key in [*one, *(key for key in other if key not in one)]}
