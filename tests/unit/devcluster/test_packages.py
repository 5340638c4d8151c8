"""apt-get is a script here, which fails until the package lists are fresh."""

from pathlib import Path

import pytest
from devcluster.errors import PackageInstallError
from devcluster.packages import apt


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    script = tmp_path / "apt-get"
    script.write_text(
        f"""#!/bin/sh
echo "$*" >> {tmp_path}/said
case "$*" in *update*) [ -e {tmp_path}/offline ] || touch {tmp_path}/fresh;; esac
[ -e {tmp_path}/fresh ] || {{ echo "E: no such package" >&2; exit 100; }}
case "$*" in *download*) touch downloaded;; esac
"""
    )
    script.chmod(0o755)
    return tmp_path


def said(folder: Path) -> list[str]:
    """What was asked, without the option that every call has."""
    lines = (folder / "said").read_text().splitlines()
    assert all(line.startswith("-o DPkg::Lock::Timeout=300 ") for line in lines)
    return [line.partition("=300 ")[2] for line in lines]


def test_old_package_lists_are_brought_up_to_date_for_a_download_too(folder: Path) -> None:
    (folder / "scratch").mkdir()
    apt(["download", "busybox-static"], cwd=folder / "scratch", program=str(folder / "apt-get"))
    assert said(folder) == ["download busybox-static", "update", "download busybox-static"]
    assert (folder / "scratch" / "downloaded").exists()


def test_lists_are_not_fetched_where_they_are_fresh(folder: Path) -> None:
    (folder / "fresh").touch()
    apt(["install", "--yes", "socat"], cwd=folder, program=str(folder / "apt-get"))
    assert said(folder) == ["install --yes socat"]


def test_what_stays_impossible_ends_with_apts_own_words(folder: Path) -> None:
    (folder / "offline").touch()
    with pytest.raises(PackageInstallError, match="no such package"):
        apt(["install", "--yes", "socat"], program=str(folder / "apt-get"))
