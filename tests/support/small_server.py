"""Enough of an API server, in memory, for an operator of any commit: it imports nothing of ours.

Objects are kept as they were sent, so that what two operators send can be compared. Maps of an apply are merged into
what is there, the rest is replaced; a CRD's defaults are filled in and unknown fields dropped on every read, as the API
server does with what it finds in etcd.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from support.selectors import selects

Key = tuple[str, str, str]
"""Kind, namespace and name."""
Thing = dict[str, Any]
JOB_KIND = "HarborRLJob"


@dataclass(frozen=True)
class Write:
    """What an operator sent."""

    verb: str
    kind: str
    name: str
    body: Thing


@dataclass
class SmallServer:
    """The methods of the operator's client that passes use."""

    crd: Thing
    created_at: str
    objects: dict[Key, Thing] = field(default_factory=dict)
    writes: list[Write] = field(default_factory=list)

    def put(self, thing: Thing) -> Thing:
        """By the world, not by an operator."""
        key = _key(thing)
        made = {"uid": f"uid-{key[0]}-{key[2]}", "creationTimestamp": self.created_at, "generation": 1}
        self.objects[key] = merged(merged({"metadata": made}, self.objects.get(key, {})), thing)
        return self.objects[key]

    async def get(self, kind: str, namespace: str | None, name: str) -> Thing | None:
        found = self.objects.get((kind, namespace or "", name))
        return None if found is None else self._read(found)

    async def find(self, kind: str, namespace: str | None, selector: str = "", fields: str = "") -> list[Thing]:
        chosen = [
            thing
            for key, thing in self.objects.items()
            if key[0] == kind and namespace in (None, key[1]) and selects(selector, thing)
        ]
        return [] if fields else [self._read(thing) for thing in chosen]

    async def find_shared(self, kind: str, namespace: str | None) -> list[Thing]:
        return await self.find(kind, namespace)

    async def apply(self, thing: Mapping[str, Any], *, subresource: str = "") -> Thing:
        return self._written("apply" + (f" {subresource}" if subresource else ""), thing)

    async def create(self, thing: Mapping[str, Any]) -> Thing:
        return self._written("create", thing)

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        self.writes.append(Write("delete", kind, name, {"uid": uid}))
        self.objects.pop((kind, namespace, name), None)

    def _written(self, verb: str, thing: Mapping[str, Any]) -> Thing:
        body = copy.deepcopy(dict(thing))
        body["metadata"].setdefault("name", f"{body['metadata'].get('generateName', '')}{len(self.writes)}")
        self.writes.append(Write(verb, body["kind"], body["metadata"]["name"], body))
        if "status" in verb:
            self.objects[_key(body)]["status"] = body["status"]
            return self.objects[_key(body)]
        return self.put(body)

    def _read(self, thing: Thing) -> Thing:
        if thing["kind"] != JOB_KIND:
            return copy.deepcopy(thing)
        schema = self.crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        parts = {part: stored(thing[part], schema[part]) for part in ("spec", "status") if part in thing}
        return copy.deepcopy(thing) | parts


def stored(value: Any, schema: Mapping[str, Any]) -> Any:
    """As the API server gives back what it has: unknown fields pruned, defaults filled in, from the outside inwards."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return copy.deepcopy(value)
    if isinstance(value, list):
        return [stored(one, schema.get("items", {})) for one in value]
    if not isinstance(value, dict):
        return value
    if "properties" not in schema:
        rest = schema.get("additionalProperties")
        return {key: stored(one, rest if isinstance(rest, dict) else {}) for key, one in value.items()}
    known = schema["properties"]
    whole = {key: part["default"] for key, part in known.items() if "default" in part} | value
    return {key: stored(one, known[key]) for key, one in whole.items() if key in known}


def merged(before: Mapping[str, Any], after: Mapping[str, Any]) -> Thing:
    out = dict(copy.deepcopy(before))
    for key, value in after.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = merged(out[key], value) if both else copy.deepcopy(value)
    return out


def _key(thing: Mapping[str, Any]) -> Key:
    meta = thing["metadata"]
    return (thing["kind"], meta.get("namespace") or "", meta["name"])
