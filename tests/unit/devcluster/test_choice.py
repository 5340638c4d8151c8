"""Which cluster is acted on, and that none is left behind. kubectl is a script here, where the real one would be."""

import io
from pathlib import Path

import pytest
from devcluster.choice import choose, claim_state, recorded_choice
from devcluster.errors import UnsuitableHostError
from devcluster.existing import ExistingCluster
from devcluster.extras import Request
from devcluster.progress import Reporter
from devcluster.settings import Settings
from rich.console import Console


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state=tmp_path / "state", cache=tmp_path / "cache")


def chosen(settings: Settings, context: str | None = None, *, docker: bool = False, kind: bool = False) -> str:
    return choose(context, settings, docker_answers=docker, kind_installed=kind)


def reporter() -> Reporter:
    return Reporter(Console(file=io.StringIO()))


def clients(settings: Settings, kubectl: str) -> None:
    for name, body in (("kubectl", kubectl), ("helm", "")):
        path = settings.cache / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)


def our_node(settings: Settings) -> None:
    settings.state.mkdir(parents=True)
    (settings.state / "host.json").write_text("{}")


def test_kind_is_used_where_it_is_installed_and_docker_answers(settings: Settings) -> None:
    assert chosen(settings, docker=True, kind=True) == "kind"
    assert chosen(settings, docker=True) == "own"
    assert chosen(settings, kind=True) == "own"


def test_a_named_context_wins_where_there_is_no_cluster_yet(settings: Settings) -> None:
    assert chosen(settings, "prod", docker=True, kind=True) == "context:prod"


@pytest.mark.parametrize("choice", ["kind", "context:prod"])
def test_a_cluster_that_exists_stays_the_choice(settings: Settings, choice: str) -> None:
    claim_state(settings, choice)
    assert chosen(settings) == choice


def test_our_own_node_is_never_left_running_for_a_named_context(settings: Settings) -> None:
    our_node(settings)
    with pytest.raises(UnsuitableHostError, match="make down"):
        chosen(settings, "prod")


def test_a_kind_cluster_is_never_left_running_for_a_named_context(settings: Settings) -> None:
    claim_state(settings, "kind")
    with pytest.raises(UnsuitableHostError, match="make down"):
        chosen(settings, "prod")


def test_our_own_node_outranks_a_record_that_forgot_it(settings: Settings) -> None:
    """`down` must remove the node, not only the record."""
    claim_state(settings, "context:prod")
    (settings.state / "host.json").write_text("{}")
    assert recorded_choice(settings) == "own"


def test_a_folder_of_the_users_is_not_claimed(settings: Settings) -> None:
    settings.state.mkdir()
    (settings.state / "thesis.tex").touch()
    with pytest.raises(UnsuitableHostError, match="was not made by devcluster"):
        claim_state(settings, "context:prod")
    assert [path.name for path in settings.state.iterdir()] == ["thesis.tex"]


def test_a_context_that_does_not_exist_leaves_nothing(settings: Settings) -> None:
    clients(settings, "exit 1")
    with pytest.raises(UnsuitableHostError, match="no context 'prod'"):
        ExistingCluster("prod", settings, reporter()).up(Request())
    assert chosen(settings) == "own"


def test_a_cluster_that_does_not_answer_is_forgotten_by_down(settings: Settings) -> None:
    clients(settings, 'case "$1" in config) echo kubeconfig;; *) exit 1;; esac')
    cluster = ExistingCluster("prod", settings, reporter())
    with pytest.raises(UnsuitableHostError, match="does not answer"):
        cluster.up(Request())
    assert chosen(settings) == "context:prod"
    cluster.down()
    assert not settings.state.exists()
    assert chosen(settings) == "own"
