"""Compiles the cluster's programs from pinned Go modules into the cache, once per version of the sources."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import BuildError, CommandError, DownloadError, UnsuitableHostError
from devcluster.processes import write_atomically
from devcluster.progress import Advance, Reporter
from devcluster.settings import KUBERNETES_VERSION
from devcluster.shell import run

SOURCES = Path(__file__).parent / "go"

KUBE_NAMES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
"""Names under which the one Kubernetes program is linked."""

KUBERAY_MODULE = "github.com/ray-project/kuberay/ray-operator"

KUBERAY_NAMESPACE = "kuberay-system"

MANAGED_BY, MANAGER = "app.kubernetes.io/managed-by", "harborrl-devcluster"
"""Label of KubeRay's namespace where we made it: what tells our installation from the user's."""

OLDEST_GO = (1, 26)
"""As go/go.mod demands; Debian 12's is 1.19, which does not understand the demand."""

INSTALL_GO = f"Install Go {OLDEST_GO[0]}.{OLDEST_GO[1]} or newer and put `go` on PATH."

KEPT_BUILDS = 3
"""Folders of programs that stay in the cache, most recently used first; each takes 0.5 GiB."""


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


KUBE = Target("kube", "./kube", kube_ldflags(KUBERNETES_VERSION))

CONTROL_PLANE = (
    KUBE,
    Target("etcd", "go.etcd.io/etcd/server/v3"),
    Target("pki", "./pki"),
)
"""What an API server without a node needs."""

HELM = Target("helm", "helm.sh/helm/v3/cmd/helm")

TESTS = (*CONTROL_PLANE, HELM)
"""What every test but those on a node needs: an API server, and helm to render the chart."""

NODE = (
    Target("cri", "./cri"),
    Target("pause", "./pause"),
    Target("coredns", "github.com/coredns/coredns"),
    Target("kuberay-operator", KUBERAY_MODULE),
    Target("local-path-provisioner", "github.com/rancher/local-path-provisioner"),
    HELM,
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
    for line in output.splitlines():
        match = re.search(r"([\w./~-]+@v[\w.+-]+): (?:\S+: )*((?:reading|Get|verifying|dial|module lookup).*)", line)
        if match:
            return match[1], match[2].strip()[:300]
    return None


def build_environment(base: Mapping[str, str]) -> dict[str, str]:
    """Static programs, and a compiler that trades some speed for memory: two linkers at once must fit in 3 GiB."""
    return {**base, "CGO_ENABLED": "0", "GOGC": "50", "GOMEMLIMIT": "3GiB"}


def go_command() -> str:
    """Path of a go command that can build our modules. Raises UnsuitableHostError where there is none."""
    found = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if found is None:
        raise UnsuitableHostError(f"No Go tool chain found. {INSTALL_GO}")
    try:
        refuse_old_go(run([found, "version"], cwd=SOURCES), found)
    except CommandError as error:  # One that knows its age, and may not fetch a newer one (GOTOOLCHAIN=local).
        raise UnsuitableHostError(f"{found} cannot be used: {error}. {INSTALL_GO}") from error
    return found


def refuse_old_go(version: str, program: str) -> None:
    """`version` is what `go version` prints inside our module: since 1.21 that of the tool chain which it fetches."""
    match = re.search(r"\bgo(\d+)\.(\d+)", version)
    if match and (int(match[1]), int(match[2])) < OLDEST_GO:
        raise UnsuitableHostError(f"{program} is Go {match[1]}.{match[2]}, too old. {INSTALL_GO}")


@dataclass(frozen=True)
class Binaries:
    """Folder of compiled programs."""

    folder: Path

    def path(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def kuberay_manifests(self) -> Path:
        """KubeRay's own manifests (CRDs, RBAC, Deployment), rendered from its module."""
        return self.folder / f"{KUBERAY_NAMESPACE}.yaml"


def ensure_binaries(cache: Path, targets: Sequence[Target], reporter: Reporter) -> Binaries:
    """Builds what the cache lacks. Each program appears in one rename, so a killed build leaves no half program."""
    go = go_command()
    builds = cache / "devcluster"
    folder = builds / sources_key(SOURCES, run([go, "version"], cwd=SOURCES))
    folder.mkdir(parents=True, exist_ok=True)
    with lock(builds / "build.lock", reporter):
        for target in targets:
            build_missing(target, SOURCES, folder, reporter)
        _link_names(folder)
        if any(target.package == KUBERAY_MODULE for target in targets):
            render_kuberay(Binaries(folder).kuberay_manifests, str(folder / "kubectl"))
        _publish(cache / "bin", folder)
        _forget_old(builds, folder)
    return Binaries(folder)


@contextmanager
def lock(path: Path, reporter: Reporter) -> Iterator[None]:
    """One build at a time; the kernel frees the lock of a killed one."""
    with path.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reporter.say("Waiting for another build to end …")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def build_missing(target: Target, sources: Path, folder: Path, reporter: Reporter) -> None:
    """Builds `target` of the Go module in `sources` into `folder`, unless it is there."""
    if not (folder / target.name).exists():
        with reporter.stage(f"Build {target.name}") as advance:
            _build(target, sources, folder, advance)


def _build(target: Target, sources: Path, folder: Path, advance: Advance) -> None:
    go = go_command()
    partial = folder / f".{target.name}.partial"
    flags = f"-s -w {target.ldflags}".strip()
    argv = [go, "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", str(partial), target.package]
    environment = build_environment(os.environ)
    try:
        total = len(run([go, "list", "-deps", target.package], cwd=sources, env=environment).split())
    except CommandError as error:
        raise build_error(target, str(error)) from error
    tail: list[str] = []
    with subprocess.Popen(argv, cwd=sources, env=environment, stderr=subprocess.PIPE, text=True) as process:
        for compiled, line in enumerate(process.stderr or (), start=1):
            tail = [*tail[-40:], line]
            advance(min(compiled / total, 0.99))
    if process.returncode != 0:
        raise build_error(target, "".join(tail))
    partial.replace(folder / target.name)


def build_error(target: Target, output: str) -> DownloadError | BuildError:
    """The error that the go command's output tells of."""
    download = failed_module(output)
    if download:
        return DownloadError(*download)
    return BuildError(f"{target.name} ({target.package}) does not compile: {output.strip()}")


def _link_names(folder: Path) -> None:
    for name in KUBE_NAMES:
        if not (folder / name).exists():
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to("kube")


def _publish(shelf: Path, folder: Path) -> None:
    """Keeps `kubectl` and `helm` at a path that does not change with the sources, for people's PATH."""
    shelf.mkdir(parents=True, exist_ok=True)
    for name in ("kubectl", "helm"):
        link, partial = shelf / name, shelf / f".{name}.partial"
        if (folder / name).exists() and (not link.is_symlink() or link.readlink() != folder / name):
            partial.unlink(missing_ok=True)
            partial.symlink_to(folder / name)
            partial.replace(link)


def _forget_old(builds: Path, current: Path) -> None:
    """Removes builds of sources that nobody has used for longest."""
    os.utime(current)
    folders = sorted((path for path in builds.iterdir() if path.is_dir()), key=lambda path: -path.stat().st_mtime)
    for stale in folders[KEPT_BUILDS:]:
        shutil.rmtree(stale, ignore_errors=True)


def module_folder(module: str, sources: Path) -> Path:
    """Where the go command keeps the tree of a module that `sources` pins; fetched if it is not there."""
    go = go_command()
    try:
        run([go, "mod", "download", module], cwd=sources)
    except CommandError as error:
        raise DownloadError(module, str(error)) from error
    return Path(run([go, "list", "-m", "-f", "{{.Dir}}", module], cwd=sources).strip())


def render_kuberay(target: Path, kubectl: str, sources: Path = SOURCES) -> None:
    """Writes KubeRay's manifests, in a namespace of their own, from the tree that its Go module carries."""
    if target.exists():
        return
    overlay = target.parent / "kuberay"
    overlay.mkdir(parents=True, exist_ok=True)
    base = os.path.relpath(module_folder(KUBERAY_MODULE, sources) / "config" / "default", overlay)
    write_atomically(overlay / "kustomization.yaml", f"namespace: {KUBERAY_NAMESPACE}\nresources: ['{base}']\n")
    labels = f"{{{MANAGED_BY}: {MANAGER}}}"
    namespace = f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {KUBERAY_NAMESPACE}, labels: {labels}}}\n"
    write_atomically(target, f"{namespace}---\n{run([kubectl, 'kustomize', overlay])}")
