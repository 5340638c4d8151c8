"""What runs in pods: DNS, volume provisioner, KubeRay; their images and their manifests."""

import shutil
import string
from pathlib import Path
from typing import Any

import yaml

from devcluster.gobuild import KUBERAY_NAMESPACE, Binaries
from devcluster.kwok import NODE_LABEL
from devcluster.nodeconfig import PAUSE_IMAGE
from devcluster.ocilayout import Layout
from devcluster.packages import apt
from devcluster.settings import COREDNS_VERSION, KUBERAY_VERSION, LOCAL_PATH_VERSION, Settings
from devcluster.shell import run

MANIFESTS = Path(__file__).parent / "manifests"

COREDNS_IMAGE = f"localhost/devcluster/coredns:{COREDNS_VERSION}"
LOCAL_PATH_IMAGE = f"localhost/devcluster/local-path-provisioner:{LOCAL_PATH_VERSION}"
SHELL_IMAGE = "localhost/devcluster/busybox:1"
"""A shell with the usual small tools: makes and removes volume folders, and serves tests as a client."""


def kuberay_image(version: str) -> str:
    return f"localhost/devcluster/kuberay-operator:{version}"


SYSTEM_IMAGES = (PAUSE_IMAGE, COREDNS_IMAGE, kuberay_image(KUBERAY_VERSION), LOCAL_PATH_IMAGE, SHELL_IMAGE)

APPLETS = (
    "sh", "cat", "chmod", "cp", "date", "echo", "env", "false", "grep", "head", "hostname", "id", "ip", "kill", "ls",
    "mkdir", "mv", "nc", "nslookup", "ping", "ps", "rm", "sed", "seq", "sleep", "sort", "stat", "tail", "tar", "test",
    "touch", "tr", "true", "wc",
)  # fmt: skip

DEPLOYMENTS = (
    ("kube-system", "coredns"),
    ("local-path-storage", "local-path-provisioner"),
    (KUBERAY_NAMESPACE, "kuberay-operator"),
)
"""What must be available before the cluster counts as up."""


def write_system_images(layout: Layout, binaries: Binaries, busybox: Path) -> None:
    def program(name: str) -> Path:
        return Path(binaries.path(name))

    layout.root.mkdir(parents=True, exist_ok=True)
    layout.add_program_image(PAUSE_IMAGE, {"bin/pause": program("pause")}, ["/bin/pause"])
    layout.add_program_image(COREDNS_IMAGE, {"bin/coredns": program("coredns")}, ["/bin/coredns"])
    layout.add_program_image(kuberay_image(KUBERAY_VERSION), {"manager": program("kuberay-operator")}, ["/manager"])
    layout.add_program_image(
        LOCAL_PATH_IMAGE,
        {"bin/local-path-provisioner": program("local-path-provisioner")},
        ["/bin/local-path-provisioner"],
    )
    links = {f"bin/{applet}": "busybox" for applet in APPLETS}
    layout.add_program_image(SHELL_IMAGE, {"bin/busybox": busybox}, ["/bin/sh"], links)


def ensure_busybox(binaries: Binaries) -> Path:
    """A static busybox, unpacked from Debian's package without installing it (it would replace a dynamic one)."""
    target = binaries.folder / "busybox"
    if target.exists():
        return target
    scratch = binaries.folder / "busybox.partial"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    scratch.chmod(0o777)  # apt downloads as a user of its own.
    apt(["download", "busybox-static"], cwd=scratch)
    (package,) = scratch.glob("*.deb")
    run(["dpkg-deb", "--extract", package, scratch / "tree"])
    found = next(path for path in (scratch / "tree/bin/busybox", scratch / "tree/usr/bin/busybox") if path.exists())
    found.replace(target)
    shutil.rmtree(scratch)
    return target


def coredns_manifest(settings: Settings, *, has_upstream: bool) -> str:
    """Without an upstream resolver only cluster names are answered; `forward` would refuse to start."""
    template = string.Template((MANIFESTS / "coredns.yaml").read_text())
    forward = "      forward . /etc/resolv.conf" if has_upstream else "      # no resolver on this machine"
    return template.substitute(image=COREDNS_IMAGE, dns=settings.network.dns, forward=forward)


def local_path_manifest(settings: Settings) -> str:
    template = string.Template((MANIFESTS / "local-path.yaml").read_text())
    return template.substitute(
        image=LOCAL_PATH_IMAGE, helper=SHELL_IMAGE, volumes=settings.volumes, fake_node=NODE_LABEL
    )


def kuberay_manifest(rendered: str, version: str = KUBERAY_VERSION) -> str:
    """KubeRay's own manifests with our image, and without its CPU limit, under which it takes a minute to start.

    Only the Deployment is parsed: the CRDs beside it are 1.4 MB of YAML, 10 s of parsing.
    """
    documents = rendered.split("\n---\n")
    return "\n---\n".join(
        _with_our_image(document, version) if "\nkind: Deployment\n" in document else document for document in documents
    )


def _with_our_image(document: str, version: str) -> str:
    deployment = yaml.safe_load(document)
    _use_our_image(deployment["spec"]["template"]["spec"], kuberay_image(version))
    rendered: str = yaml.safe_dump(deployment, sort_keys=False)
    return rendered


def _use_our_image(pod: dict[str, Any], image: str) -> None:
    # Our image names no user; the manifests demand one that is not root.
    pod["securityContext"] = {**pod.get("securityContext", {}), "runAsUser": 65532}
    for container in pod["containers"]:
        container["image"] = image
        container["imagePullPolicy"] = "Never"
        container["resources"] = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
        container["env"] = [{"name": "GOMEMLIMIT", "value": "200MiB"}, {"name": "GOMAXPROCS", "value": "2"}]
        for probe in ("livenessProbe", "readinessProbe"):
            container[probe] = {**container[probe], "initialDelaySeconds": 2, "periodSeconds": 3}
