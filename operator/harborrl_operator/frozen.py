"""What the API server refuses to change while an attempt runs, and why: transition rules over the whole object.

A driver and its volumes are made from these fields once; an edit would be stored and do nothing. Everything may be
corrected before the start, while refused, between two attempts and while suspended. What the operator itself reads in
every pass (suspend, retries, deadlines, progress) and the agent server, which is rolled out anew, stay free; but not
what the trainer knows of the server: its address, the agent that each trial names, and the secret that a flush bears.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

FROZEN = ("data", "eval", "model", "queueName", "resumeFrom", "rollout", "storage")
PARTLY: Mapping[str, tuple[str, ...]] = {
    "agentServer": ("adminSecretRef", "agentName", "url"),
    "checkpoint": ("graceSeconds", "keep"),
}
"""Frozen fields of parts that are free otherwise."""
EXCEPT: Mapping[str, tuple[str, ...]] = {"trainer": ("allowPartialStart", "startDeadlineSeconds")}
"""Free fields of parts that are frozen otherwise: no pod knows them."""
FREE = (
    "activeDeadlineSeconds",
    "network",
    "progress",
    "retries",
    "suspend",
    "ttlSecondsAfterFinished",
)
ONLY_WHILE_QUEUED = ("workloadPriorityClass",)
"""A RayCluster that waits is made anew with it; one that runs keeps what Kueue has admitted."""

# Named are the phases in which nothing was made from the spec yet: a phase that comes later is a held one.
_HELD = (
    "has(oldSelf.status) && has(oldSelf.status.phase)"
    " && !(oldSelf.status.phase in ['Pending', 'Refused', 'StartingAgentServer', 'Preflight', 'Suspended'])"
    " && (has(oldSelf.status.finishedAt) || (has(oldSelf.status.trainer) && has(oldSelf.status.trainer.rayCluster)))"
)


def frozen_rules(spec: Mapping[str, Any]) -> list[dict[str, str]]:
    """Rules for the root of the CRD's schema, one a part, so that the answer names the part. `spec` is its schema."""
    rules = [_rule(part, [(part,)], spec) for part in FROZEN]
    for part, free in EXCEPT.items():
        frozen = [(part, field) for field in spec["properties"][part]["properties"] if field not in free]
        rules.append(_rule(part, frozen, spec))
    single = [(part, field) for part, fields in PARTLY.items() for field in fields]
    waiting = [_rule(field, [(field,)], spec, unless="oldSelf.status.phase == 'Queued'") for field in ONLY_WHILE_QUEUED]
    return [*rules, *(_rule(".".join(path), [path], spec) for path in single), *waiting]


def _rule(field: str, paths: Sequence[tuple[str, ...]], spec: Mapping[str, Any], unless: str = "") -> dict[str, str]:
    same = " && ".join(part for path in paths for part in _same(path, spec))
    return {
        "rule": f"!({_HELD}) || " + (f"({unless}) || " if unless else "") + f"({same})",
        "message": (
            f"spec.{field} cannot change while an attempt runs or after the end, since the run was made from it: set"
            " spec.suspend: true, change it, and resume; or delete the job and apply it under another name"
        ),
        "reason": "FieldValueForbidden",
        "fieldPath": f".spec.{field}",
    }


def _same(path: tuple[str, ...], spec: Mapping[str, Any]) -> Iterator[str]:
    """One value, in the new object and in the old one; an optional field may be absent in both."""
    new, old = (".".join((root, "spec", *path)) for root in ("self", "oldSelf"))
    schema: Mapping[str, Any] = spec
    for name in path:
        schema, parent = schema["properties"][name], schema
    if path[-1] in parent.get("required", []) or "default" in schema:
        yield f"{new} == {old}"
    else:
        yield f"(has({new}) ? has({old}) && {new} == {old} : !has({old}))"
