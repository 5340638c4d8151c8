"""kubernetes-sigs/agent-sandbox: its own kustomization with our image, extensions and all."""

from pathlib import Path

from devcluster.modules import AGENT_SANDBOX, Built
from devcluster.processes import write_atomically
from devcluster.shell import run

NAMESPACE, DEPLOYMENT = "agent-sandbox-system", "agent-sandbox-controller"
IMAGE = f"localhost/devcluster/agent-sandbox:{AGENT_SANDBOX.version}"

PLACEHOLDER = f"ko://{AGENT_SANDBOX.target.package}"
"""What the kustomization says in the image's place."""

RESOURCES = (
    "sandboxclaims.extensions.agents.x-k8s.io",
    "sandboxwarmpools.extensions.agents.x-k8s.io",
    "sandboxtemplates.extensions.agents.x-k8s.io",
    "sandboxes.agents.x-k8s.io",
)
"""Claims first: a pool whose Sandboxes are deleted makes new ones."""


def manifests(built: Built, kubectl: str) -> str:
    file = built.folder / "agent-sandbox.yaml"
    if not file.exists():
        rendered = run([kubectl, "kustomize", built.tree() / "k8s"])
        write_atomically(file, rendered.replace(PLACEHOLDER, IMAGE))
    return file.read_text()


def remove(kubectl: list[str | Path]) -> None:
    """Objects while their controller still lives, then it, then what it served."""
    for resource in RESOURCES:
        run([*kubectl, "delete", resource, "--all", "--all-namespaces", "--ignore-not-found"], timeout=120)
    run([*kubectl, "delete", "namespace", NAMESPACE, "--ignore-not-found"], timeout=120)
    run([*kubectl, "delete", "customresourcedefinition", *RESOURCES, "--ignore-not-found"], timeout=120)
    for kind in ("clusterrolebinding", "clusterrole"):
        run([*kubectl, "delete", kind, DEPLOYMENT, f"{DEPLOYMENT}-extensions", "--ignore-not-found"], timeout=60)
