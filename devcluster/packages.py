"""Debian packages that the node needs."""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from devcluster.errors import CommandError, PackageInstallError, UnsuitableHostError
from devcluster.progress import Reporter
from devcluster.shell import run

PROGRAMS = {
    "containerd": "containerd",
    "runc": "runc",
    "buildah": "buildah",
    "skopeo": "skopeo",
    "conntrack": "conntrack",
    "socat": "socat",
    "ipset": "ipset",
    "iptables": "iptables",
    "nft": "nftables",
    "ip": "iproute2",
    "debootstrap": "debootstrap",
}
"""Program to package. socat and conntrack serve port-forward and kube-proxy; debootstrap makes base images."""


LOCK_SECONDS = 300


def missing_packages(plugins_present: bool, which: Iterable[str]) -> list[str]:
    """Packages to install, given the programs that are there and whether the CNI plugins are."""
    present = set(which)
    wanted = [package for program, package in PROGRAMS.items() if program not in present]
    return wanted if plugins_present else [*wanted, "containernetworking-plugins"]


def ensure_packages(reporter: Reporter, plugins: str) -> None:
    found = [program for program in PROGRAMS if shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin")]
    packages = missing_packages(Path(plugins, "bridge").exists(), found)
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise UnsuitableHostError(f"Missing: {', '.join(packages)}; and this is not Debian, so install them by hand.")
    with reporter.stage(f"Install {' '.join(packages)}"):
        apt(["install", "--yes", "--no-install-recommends", *packages])


def apt(arguments: Sequence[str], *, cwd: Path | None = None, program: str = "apt-get") -> None:
    """Runs apt-get, once more after `update` if it fails: package lists may be older than the mirror, or absent.

    Waits for another package manager, as unattended upgrades start one after boot. Raises PackageInstallError.
    """
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = [program, "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}"]
    try:
        run([*command, *arguments], env=environment, cwd=cwd)
    except CommandError:
        try:
            run([*command, "update"], env=environment)
            run([*command, *arguments], env=environment, cwd=cwd)
        except CommandError as error:
            raise PackageInstallError(f"apt-get {' '.join(arguments)} failed: {error}") from error
