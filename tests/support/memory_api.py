"""An API server in memory, behind the operator's own client: what it says of versions, uids and conflicts is as there.

It knows no schema, defaults nothing and stores each part of an applied object as it was sent. There are no controllers
and no kubelet: an object that is deleted is gone at once, and whatever else happens to one, a test does it.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from kubernetes.aio import client

from harborrl_operator.clock import to_text
from harborrl_operator.cluster import Cluster
from harborrl_operator.constants import KIND
from harborrl_operator.transport import Answer, Request
from support import hrl, reached
from support.selectors import selects

Key = tuple[str, str, str]
"""Kind, namespace and name."""
Thing = dict[str, Any]


@dataclass
class MemoryApi:
    """`send` is a transport of `Cluster`. `now` stamps what is created."""

    now: Callable[[], datetime] = lambda: hrl.NOW
    objects: dict[Key, Thing] = field(default_factory=dict)
    _version: int = 0
    _made: dict[Key, int] = field(default_factory=dict)

    def cluster(self) -> Cluster:
        return Cluster(client.ApiClient(client.Configuration()), self.send)

    async def send(self, request: Request) -> Answer:
        namespace, name, subresource = _place(request)
        key = (request.kind, namespace, name)
        match request.verb:
            case "get":
                return self._found(key)
            case "list":
                return self._listed(request, namespace)
            case "create":
                return self._create(request, namespace)
            case "delete":
                return self._delete(key, request)
            case _:
                return self._change(key, request, subresource)

    def _found(self, key: Key) -> Answer:
        return _answer(200, self.objects[key]) if key in self.objects else _refusal(404, f"{key[0]} {key[2]} not found")

    def _listed(self, request: Request, namespace: str) -> Answer:
        query = dict(request.query)
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        items = [
            thing
            for (kind, where, _), thing in sorted(self.objects.items())
            if kind == request.kind and namespace in ("", where) and _matches(thing, labels, fields)
        ]
        return _answer(200, {"items": items, "metadata": {}})

    def _create(self, request: Request, namespace: str) -> Answer:
        thing = copy.deepcopy(dict(request.body or {}))
        key = (request.kind, namespace, thing["metadata"]["name"])
        if key in self.objects:
            return _refusal(409, f"{request.kind} {key[2]} already exists")
        if ("dryRun", "All") in request.query:
            return _answer(201, thing)
        return _answer(201, self._store(key, thing))

    def _delete(self, key: Key, request: Request) -> Answer:
        found = self.objects.get(key)
        if found is None:
            return self._found(key)
        wanted = (request.body or {}).get("preconditions", {}).get("uid")
        if wanted not in (None, found["metadata"]["uid"]):
            return _refusal(409, f"the uid of {key[0]} {key[2]} is another one")
        return _answer(200, self.objects.pop(key))

    def _change(self, key: Key, request: Request, subresource: str) -> Answer:
        """Applied, patched or replaced."""
        found, sent = self.objects.get(key), copy.deepcopy(dict(request.body or {}))
        if found is None and (subresource or "apply" not in request.content_type):
            return self._found(key)
        version = sent.get("metadata", {}).get("resourceVersion")
        if found is not None and version not in (None, found["metadata"]["resourceVersion"]):
            return _refusal(409, f"{key[0]} {key[2]} has been modified")
        if "merge-patch" in request.content_type:
            changed = _patched(found or {}, sent)
        elif subresource:
            changed = {**(found or {}), subresource: sent[subresource]}
        else:
            changed = {**(found or {}), **sent, "metadata": {**(found or {}).get("metadata", {}), **sent["metadata"]}}
        if key[0] == KIND and subresource == "status":
            reached.note_status(changed["status"])
        return _answer(200, self._store(key, changed))

    def _store(self, key: Key, thing: Thing) -> Thing:
        before = self.objects.get(key)
        meta = thing.setdefault("metadata", {})
        if before is None:
            self._made[key] = nth = self._made.get(key, 0) + 1
            uid = str(uuid5(NAMESPACE_URL, "/".join((*key, str(nth)))))
            meta |= {"uid": uid, "creationTimestamp": to_text(self.now())}
            meta |= {"namespace": key[1]} if key[1] else {}
        if "spec" in thing:
            is_same = before is not None and before.get("spec") == thing["spec"]
            meta["generation"] = (before or {}).get("metadata", {}).get("generation", 0) + (not is_same)
        self._version += 1
        meta["resourceVersion"] = str(self._version)
        self.objects[key] = {"kind": key[0], **thing}
        return self.objects[key]


def _place(request: Request) -> tuple[str, str, str]:
    """Namespace, name and subresource; empty where there is none."""
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and request.kind != "Namespace":
        namespace, parts = parts[1], parts[2:]
    name, subresource = [*parts[1:], "", ""][:2]
    return namespace, name, subresource


def _matches(thing: Thing, labels: str, fields: str) -> bool:
    if not selects(labels, thing):
        return False
    for term in filter(None, fields.split(",")):
        path, _, value = term.partition("=")
        part: Any = thing
        for step in path.split("."):
            part = part.get(step, {})
        if part != value:
            return False
    return True


def _patched(before: Mapping[str, Any], patch: Mapping[str, Any]) -> Thing:
    """RFC 7386."""
    out = dict(before)
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, Mapping):
            part = out.get(key)
            out[key] = _patched(part if isinstance(part, Mapping) else {}, value)
        else:
            out[key] = value
    return out


def _answer(status: int, body: Mapping[str, Any]) -> Answer:
    return Answer(status, json.dumps(body))


def _refusal(status: int, message: str) -> Answer:
    return _answer(status, {"kind": "Status", "message": message})
