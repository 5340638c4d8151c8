"""Compiles the cluster's programs from pinned Go modules into the cache, once per version of the sources."""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import BuildFailed, DownloadFailed, HostUnsuitable
from devcluster.processes import write_atomically
from devcluster.progress import Advance, Reporter
from devcluster.settings import KUBERNETES_VERSION
from devcluster.shell import run

SOURCES = Path(__file__).parent / "go"

KUBE_NAMES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
"""Names under which the one Kubernetes program is linked."""

KUBERAY_MODULE = "github.com/ray-project/kuberay/ray-operator"


@dataclass(frozen=True)
class Target:
    """One program: the name it gets and the package it is built from."""

    name: str
    package: str
    ldflags: str = ""


def kube_ldflags(version: str) -> str:
    """Linker flags that make the programs report `version`; without them the node registers as v0.0.0."""
    major, minor, _ = version.removeprefix("v").split(".")
    component = "k8s.io/component-base/version"
    values = {
        f"{component}.gitVersion": version,
        f"{component}.gitMajor": major,
        f"{component}.gitMinor": minor,
    }
    return " ".join(f"-X {name}={value}" for name, value in values.items())


CONTROL_PLANE = (
    Target("kube", "./kube", kube_ldflags(KUBERNETES_VERSION)),
    Target("etcd", "go.etcd.io/etcd/server/v3"),
    Target("pki", "./pki"),
)
"""What an API server without a node needs."""

NODE = (
    Target("cri", "./cri"),
    Target("pause", "./pause"),
    Target("coredns", "github.com/coredns/coredns"),
    Target("kuberay-operator", KUBERAY_MODULE),
    Target("local-path-provisioner", "github.com/rancher/local-path-provisioner"),
    Target("helm", "helm.sh/helm/v3/cmd/helm"),
    Target("kube-router", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"),
)


def sources_key(sources: Path, toolchain: str) -> str:
    """Name of the folder for programs built from these sources by this tool chain.

    Any byte of a Go file, go.mod or go.sum, a file's name, or the tool chain's version changes it.
    """
    digest = hashlib.sha256(toolchain.encode())
    for path in sorted(sources.rglob("*")):
        if path.suffix in {".go", ".mod", ".sum"}:
            digest.update(f"\0{path.relative_to(sources)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def failed_module(output: str) -> tuple[str, str] | None:
    """Module and cause where the go command's output tells of a failed download, else None."""
    match = re.search(r"(?:^|\s)([\w./~-]+@v[\w.+-]+)[^\n]*?: (?:reading|Get|verifying|dial) ?(.*)", output)
    return (match[1], match[2].strip()[:300]) if match else None


def build_environment(base: Mapping[str, str]) -> dict[str, str]:
    """Static programs, and a compiler that trades some speed for memory: two linkers at once must fit in 3 GiB."""
    return {**base, "CGO_ENABLED": "0", "GOGC": "50", "GOMEMLIMIT": "3GiB", "GOFLAGS": "-buildvcs=false"}


def go_command() -> str:
    found = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if found is None:
        raise HostUnsuitable("No Go tool chain found. Install Go 1.26 or newer and put `go` on PATH.")
    return found


@dataclass(frozen=True)
class Binaries:
    """Folder of compiled programs."""

    folder: Path

    def path(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def kuberay_manifests(self) -> Path:
        """KubeRay's own manifests (CRDs, RBAC, Deployment), rendered from its module."""
        return self.folder / "kuberay.yaml"


def ensure_binaries(cache: Path, targets: Sequence[Target], reporter: Reporter) -> Binaries:
    """Builds what the cache lacks. Each program appears in one rename, so a killed build leaves no half program."""
    go = go_command()
    folder = cache / "devcluster" / sources_key(SOURCES, run([go, "version"], cwd=SOURCES))
    folder.mkdir(parents=True, exist_ok=True)
    for target in targets:
        if not (folder / target.name).exists():
            with reporter.stage(f"Build {target.name}") as advance:
                _build(go, target, folder, advance)
        if target.name == "kube":
            _link_names(folder)
        if target.name == "kuberay-operator" and not (folder / "kuberay.yaml").exists():
            _render_kuberay(go, folder)
    _publish(cache / "bin", folder)
    return Binaries(folder)


def _build(go: str, target: Target, folder: Path, advance: Advance) -> None:
    partial = folder / f".{target.name}.{os.getpid()}.partial"
    flags = f"-s -w {target.ldflags}".strip()
    argv = [go, "build", "-v", "-trimpath", "-ldflags", flags, "-o", str(partial), target.package]
    environment = build_environment(os.environ)
    total = max(1, len(run([go, "list", "-deps", target.package], cwd=SOURCES, env=environment).split()))
    tail: list[str] = []
    with subprocess.Popen(argv, cwd=SOURCES, env=environment, stderr=subprocess.PIPE, text=True) as process:
        for compiled, line in enumerate(_lines(process), start=1):
            tail = [*tail[-40:], line]
            advance(min(compiled / total, 0.99))
    if process.returncode != 0:
        output = "\n".join(tail)
        partial.unlink(missing_ok=True)
        if download := failed_module(output):
            raise DownloadFailed(*download)
        raise BuildFailed(f"{target.name} ({target.package}) does not compile:\n{output}")
    partial.replace(folder / target.name)


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stderr is not None
    for line in process.stderr:
        yield line.rstrip()


def _link_names(folder: Path) -> None:
    for name in KUBE_NAMES:
        if not (folder / name).exists():
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to("kube")


def _publish(shelf: Path, folder: Path) -> None:
    """Keeps `kubectl` and `helm` at a path that does not change with the sources, for people's PATH."""
    shelf.mkdir(parents=True, exist_ok=True)
    for name in ("kubectl", "helm"):
        link, partial = shelf / name, shelf / f".{name}.{os.getpid()}"
        if (folder / name).exists() and (not link.is_symlink() or link.readlink() != folder / name):
            partial.symlink_to(folder / name)
            partial.replace(link)


def _render_kuberay(go: str, folder: Path) -> None:
    module = run([go, "list", "-m", "-f", "{{.Dir}}", KUBERAY_MODULE], cwd=SOURCES).strip()
    rendered = run([folder / "kubectl", "kustomize", Path(module) / "config" / "default"])
    write_atomically(folder / "kuberay.yaml", rendered)
