"""Add-ons that are built in a Go module of their own, because their dependencies and the cluster's do not fit."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from devcluster.gobuild import (
    KUBERAY_MODULE,
    Target,
    build_missing,
    go_command,
    lock,
    module_folder,
    sources_key,
)
from devcluster.progress import Reporter
from devcluster.shell import run

MODULES = Path(__file__).parent / "gomodules"

KEPT_BUILDS = 2
"""Builds of one add-on that stay in the cache, most recently used first; each takes up to 0.1 GiB."""


@dataclass(frozen=True)
class Module:
    """One add-on; `gomodules/NAME` pins it and everything that it is compiled from."""

    name: str
    path: str
    """The Go module, whose tree also carries the add-on's manifests."""
    version: str
    target: Target

    @property
    def sources(self) -> Path:
        return MODULES / self.name


KUEUE = Module(
    "kueue",
    "sigs.k8s.io/kueue",
    "v0.19.2",
    Target("kueue", "sigs.k8s.io/kueue/cmd/kueue", "-X sigs.k8s.io/kueue/pkg/version.GitVersion=v0.19.2"),
)
KWOK = Module("kwok", "sigs.k8s.io/kwok", "v0.7.0", Target("kwok", "sigs.k8s.io/kwok/cmd/kwok"))
AGENT_SANDBOX = Module(
    "agent-sandbox",
    "sigs.k8s.io/agent-sandbox",
    "v0.5.6",
    Target("agent-sandbox", "sigs.k8s.io/agent-sandbox/cmd/agent-sandbox-controller"),
)
KUBERAY_1_5 = Module("kuberay-1.5.1", KUBERAY_MODULE, "v1.5.1", Target("kuberay-operator", KUBERAY_MODULE))


@dataclass(frozen=True)
class Built:
    """An add-on in the cache."""

    module: Module
    folder: Path

    @property
    def program(self) -> Path:
        return self.folder / self.module.target.name

    def tree(self) -> Path:
        """The add-on's own sources, with its chart or kustomize tree."""
        return module_folder(self.module.path, self.module.sources)


def ensure_module(cache: Path, module: Module, reporter: Reporter) -> Built:
    """Builds what the cache lacks; a killed build leaves no half program."""
    builds = cache / "devcluster-addons"
    key = sources_key(module.sources, run([go_command(), "version"], cwd=module.sources))
    folder = builds / module.name / key
    folder.mkdir(parents=True, exist_ok=True)
    with lock(builds / "build.lock", reporter):
        build_missing(module.target, module.sources, folder, reporter)
        _forget_old(folder)
    return Built(module, folder)


def _forget_old(current: Path) -> None:
    os.utime(current)
    folders = sorted(current.parent.iterdir(), key=lambda path: -path.stat().st_mtime)
    for stale in folders[KEPT_BUILDS:]:
        shutil.rmtree(stale, ignore_errors=True)
