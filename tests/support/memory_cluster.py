"""The operator's client over a dictionary: enough of an API server for whole passes in unit tests."""

from collections.abc import Mapping
from typing import Any, override

from harborrl_operator.cluster import Cluster
from support import hrl, reached
from support.selectors import selects

Key = tuple[str, str | None, str]


class MemoryCluster(Cluster):
    """Objects by kind, namespace and name. `apply` merges maps and replaces the rest; status is set by tests alone."""

    def __init__(self, spec: dict[str, Any] | None = None, name: str = "quickstart") -> None:
        self.objects: dict[Key, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.put("Namespace", None, "harborrl-sandboxes", {"metadata": {"labels": {"harborrl.dev/sandboxes": "true"}}})
        self.put("PersistentVolumeClaim", "research", "harborrl-data", hrl.claim())
        meta = {"uid": hrl.UID, "generation": 1}
        self.put("HarborRLJob", "research", name, {"metadata": meta, "spec": spec or hrl.QUICKSTART_SPEC})

    @property
    def job(self) -> dict[str, Any]:
        return next(thing for (kind, _, _), thing in self.objects.items() if kind == "HarborRLJob")

    def condition(self, kind: str) -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in self.job["status"]["conditions"] if one["type"] == kind)
        return found

    def put(self, kind: str, namespace: str | None, name: str, thing: Mapping[str, Any]) -> dict[str, Any]:
        key = (kind, namespace, name)
        before = self.objects.get(key, {})
        made = {"uid": f"uid-{kind}-{name}", "creationTimestamp": hrl.ago(10), "generation": 1}
        found = merged(merged({"metadata": made}, before), thing)
        found["metadata"] |= {"name": name} | ({"namespace": namespace} if namespace else {})
        self.objects[key] = {"kind": kind, **found}
        return self.objects[key]

    def server(self) -> dict[str, Any] | None:
        """The agent server's Deployment, None while there is none."""
        return next((thing for (kind, _, _), thing in self.objects.items() if kind == "Deployment"), None)

    def make_server_ready(self) -> None:
        if (server := self.server()) is not None:
            self.put("Deployment", "research", server["metadata"]["name"], {"status": hrl.deployment()["status"]})

    @override
    async def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        return self.objects.get((kind, namespace, name))

    @override
    async def find(
        self, kind: str, namespace: str | None, selector: str = "", fields: str = ""
    ) -> list[dict[str, Any]]:
        if kind == "Event":
            return self.events
        return [
            thing
            for (of, where, _), thing in self.objects.items()
            if of == kind and namespace in (None, where) and selects(selector, thing)
        ]

    @override
    async def apply(self, thing: Mapping[str, Any], *, subresource: str = "") -> dict[str, Any]:
        meta = thing["metadata"]
        if subresource == "status":
            found = self.objects[thing["kind"], meta["namespace"], meta["name"]]
            found["status"] = thing["status"]
            reached.note_status(thing["status"])
            return found
        return self.put(thing["kind"], meta.get("namespace"), meta["name"], thing)

    @override
    async def create(self, thing: Mapping[str, Any]) -> dict[str, Any]:
        if thing["kind"] != "Event":
            return self.put(thing["kind"], thing["metadata"].get("namespace"), thing["metadata"]["name"], thing)
        self.events.append(dict(thing))
        return dict(thing)

    @override
    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        self.objects.pop((kind, namespace, name), None)


def merged(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: merged(before[key], value) for key, value in after.items() if _are_maps(before.get(key), value)}
    return {**before, **after, **both}


def _are_maps(*values: Any) -> bool:
    return all(isinstance(value, Mapping) for value in values)
