"""A helm that was killed leaves its release locked; the next one unlocks it. kubectl and helm are scripts here."""

from pathlib import Path

import pytest
from demo import release
from demo.prepare import UnsuitableClusterError, refuse_named_context
from demo.shell import Shell


class Programs:
    """kubectl, which lists `records`, and helm, which refuses while one of them is there, as the real one does."""

    def __init__(self, folder: Path, records: list[str]) -> None:
        self.records, self.said = folder / "records", folder / "said"
        self.records.write_text("".join(f"secret/{record}\n" for record in records))
        self.kubectl = self._script(
            folder / "kubectl",
            f'echo "$*" >> {self.said}; case $3 in get) cat {self.records};; delete) : > {self.records};; esac',
        )
        self.helm = self._script(
            folder / "helm",
            f'echo "helm $*" >> {self.said}; [ ! -s {self.records} ] || {{ echo in progress; exit 1; }}',
        )

    def install(self, **settings: str) -> list[str]:
        release.install(Shell.here(), kubectl=self.kubectl, helm=self.helm, settings=settings)
        return self.said.read_text().splitlines()

    def _script(self, path: Path, body: str) -> str:
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)


def test_a_release_that_a_killed_helm_left_is_unlocked_and_installed(tmp_path: Path) -> None:
    said = Programs(tmp_path, ["sh.helm.release.v1.harborrl.v3"]).install()
    assert "--namespace harborrl-system delete secret/sh.helm.release.v1.harborrl.v3" in said
    assert said[-1].startswith("helm upgrade --install harborrl charts/harborrl")


def test_records_of_whole_releases_are_left_alone(tmp_path: Path) -> None:
    said = Programs(tmp_path, []).install(revision="abc")
    assert not [line for line in said if " delete " in line]
    assert "--set-string revision=abc" in said[-1]


@pytest.mark.parametrize("state", ["deployed", "failed", "superseded"])
def test_only_pending_records_are_asked_for(state: str) -> None:
    assert state not in release.INTERRUPTED


def test_a_cluster_that_cannot_be_given_images_is_refused_before_they_are_built() -> None:
    with pytest.raises(UnsuitableClusterError, match=r"context:prod.*make down"):
        refuse_named_context("context:prod")
    for choice in (None, "own", "kind"):
        refuse_named_context(choice)
