"""Clusters that are not our own node: what they lack is added, what is the user's is left alone."""

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from devcluster.existing import ensure_kuberay
from devcluster.gobuild import Target
from devcluster.programs import ensure_clients, find_program
from devcluster.progress import Reporter
from devcluster.settings import Settings
from rich.console import Console


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state=tmp_path / "state", cache=tmp_path / "cache")


def reporter() -> Reporter:
    return Reporter(Console(file=io.StringIO()))


def program(settings: Settings, name: str, body: str = "") -> Path:
    path = settings.cache / "bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_clients_that_are_nowhere_are_compiled(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    program(settings, "kubectl")
    built: list[str] = []

    def build(_cache: Path, targets: Sequence[Target], _reporter: Reporter) -> None:
        built.extend(target.name for target in targets)
        for target in targets:
            program(settings, target.name)

    ensure_clients(settings, reporter(), build)
    ensure_clients(settings, reporter(), build)
    assert built == ["helm"]
    assert find_program("helm", settings)


def kubectl(settings: Settings, *, crd: bool, ours: bool) -> Path:
    """A cluster with or without KubeRay's CRDs and a namespace that bears our label; `said` holds what it was asked."""
    settings.state.mkdir()
    (settings.state / "kuberay.yaml").touch()  # rendered by an earlier `up`
    said = settings.state / "said"
    cases = (
        f"*'get crd'*) exit {0 if crd else 1};;",
        f"*'get namespaces'*) {'echo namespace/kuberay-system' if ours else ':'};;",
    )
    return program(settings, "kubectl", f'echo "$*" >> {said}; case "$*" in {" ".join(cases)} esac')


@pytest.mark.parametrize(("crd", "ours", "installs"), [(False, False, True), (True, True, True), (True, False, False)])
def test_kuberay_is_installed_and_repaired_but_never_the_users_own(
    settings: Settings, *, crd: bool, ours: bool, installs: bool
) -> None:
    """CRDs come first: a killed installation has them and no operator that serves them."""
    ensure_kuberay(str(kubectl(settings, crd=crd, ours=ours)), settings, reporter())
    said = (settings.state / "said").read_text()
    assert (" apply " in said, " rollout status " in said) == (installs, installs)
