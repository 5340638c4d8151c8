"""The part of agent-sandbox's controller, over an API server in memory: a claim gets a Sandbox, and that a pod."""

from typing import Any

from support.sandbox_api import RUNNING, SandboxApi

NAMESPACE = "harborrl-sandboxes"
EXTENSIONS = f"/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/{NAMESPACE}"
SANDBOXES = f"/apis/agents.x-k8s.io/v1beta1/namespaces/{NAMESPACE}/sandboxes"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"

CONFIG = {"allocator": "agent-sandbox", "claims": {"template": "shell"}}


def ready(status: str, reason: str) -> list[dict[str, Any]]:
    return [{"type": "Ready", "status": status, "reason": reason, "message": "says the controller"}]


class Controller:
    """Answers claims at once; with `by_hand` a test does, through `bind`."""

    def __init__(self, api: SandboxApi, *, by_hand: bool = False, launch: str = "warm") -> None:
        self.api = api
        self.by_hand = by_hand
        self.launch = launch
        self.put(f"{EXTENSIONS}/sandboxtemplates/shell", self.template())
        api.made = self.made

    def put(self, path: str, thing: dict[str, Any]) -> None:
        name = path.rpartition("/")[2]
        meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": {}}
        self.api.objects[path] = {**thing, "metadata": meta | thing.get("metadata", {})}

    def template(self, **container: Any) -> dict[str, Any]:
        shell = {"name": "shell", "image": "image:1", **container}
        return {"spec": {"podTemplate": {"metadata": {}, "spec": {"containers": [shell]}}}}

    def made(self, path: str, thing: dict[str, Any]) -> None:
        if "/sandboxclaims/" in path and not self.by_hand:
            self.bind(thing["metadata"]["name"])

    def bind(self, name: str, pod_status: dict[str, Any] = RUNNING) -> str:
        """The claim's sandbox and pod, called otherwise than the claim."""
        sandbox = f"pool-{name[-6:]}"
        self.put(f"{SANDBOXES}/{sandbox}", {"metadata": {"labels": {"agents.x-k8s.io/launch-type": self.launch}}})
        self.put(f"{PODS}/{sandbox}", {"spec": {"containers": [{"name": "shell"}]}, "status": pod_status})
        self.api.change(name, "sandboxclaims", sandbox={"name": sandbox}, conditions=ready("True", "Ready"))
        return sandbox
