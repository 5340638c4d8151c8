"""Who can connect to whom on the real cluster: from a job's own pods, and from pods made to look like others."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.kube import Manifest
from support.kubectl import Kubectl

IMAGE = "localhost/harborrl/agent-server:dev"
"""Any of ours: it has Python."""

CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()"
RESOLVE = "import socket, sys; socket.getaddrinfo(sys.argv[1], None)"
LISTEN = "import http.server as h; h.HTTPServer(('', 8000), h.SimpleHTTPRequestHandler).serve_forever()"

PATIENCE_SECONDS = 45
"""A network plugin follows pods and policies with a delay, and the machine may be busy."""


@dataclass(frozen=True)
class Spot:
    """A container that can try a connection."""

    kubectl: Kubectl
    pod: str
    container: str

    def python(self, code: str, *arguments: str) -> bool:
        command = ("exec", self.pod, f"--container={self.container}", "--", "python3", "-c", code, *arguments)
        return self.kubectl(*command, timeout=90).returncode == 0

    def connects(self, address: str, port: int) -> bool:
        return self.python(CONNECT, address, str(port))

    def resolves(self, name: str) -> bool:
        return self.python(RESOLVE, name)


def becomes(true: Callable[[], bool], *, limit: float = PATIENCE_SECONDS) -> bool:
    """Whether it is so within the limit. Each try takes a connection's time, so nothing has to sleep."""
    deadline = time.monotonic() + limit
    while not true():
        if time.monotonic() > deadline:
            return False
    return True


def pod(name: str, labels: dict[str, str], code: str = "import time; time.sleep(86400)") -> Manifest:
    """A pod of the base image with these labels that does what `code` says."""
    resources = {"requests": {"cpu": "10m", "memory": "32Mi"}}
    container: dict[str, Any] = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", code],
        "resources": resources,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
