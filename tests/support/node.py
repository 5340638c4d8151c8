"""Signals from the node: a container's first process cannot be hurt from inside, its PID namespace shields it."""

from support.kube import Manifest
from support.workspace import Workspace

_POD: Manifest = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "killer"},
    "spec": {
        "hostPID": True,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
    },
}


def signal(workspace: Workspace, container: str, name: str, *, but_first: bool = False) -> None:
    """Send signal `name` (KILL, STOP) to every process of the container with this id, its process 1 perhaps aside."""
    found = f"grep -qs {container} $p/cgroup"
    if but_first:
        found += " && ! grep -qs '^NSpid:.*[[:space:]]1$' $p/status"
    script = f"for p in /proc/[0-9]*; do {found} && kill -s {name} ${{p#/proc/}} && n=1; done; [ $n ]"
    image = {
        "name": "kill",
        "image": "localhost/harborrl/base:dev",
        "command": ["sh", "-c", script],
        "securityContext": {"privileged": True, "runAsUser": 0},
    }
    workspace.kubectl.apply(_POD | {"spec": _POD["spec"] | {"containers": [image]}})
    wait = ("wait", "pod/killer", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
    workspace.kubectl.ok(*wait, timeout=70)
    workspace.kubectl.ok("delete", "pod/killer")
