"""The programs that build images, behind one small set of commands."""

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harborrl_agent_server.errors import StartupError

NAMES = ("docker", "buildkit", "buildah")

Answers = Callable[[list[str]], bool]
"""Whether a command is there and succeeds."""


class Builder(Protocol):
    @property
    def name(self) -> str:
        """As `--builder` calls it."""

    def commands(self, image: str, context: Path, *, push: bool, insecure: bool) -> list[list[str]]:
        """What is run one after the other to build `context` as `image`."""


@dataclass(frozen=True)
class Docker:
    name: str = "docker"

    def commands(self, image: str, context: Path, *, push: bool, insecure: bool) -> list[list[str]]:  # noqa: ARG002 - the daemon's own settings tell which registry has no TLS
        return [["docker", "buildx", "build", "--tag", image, "--push" if push else "--load", str(context)]]


@dataclass(frozen=True)
class BuildKit:
    address: str
    name: str = "buildkit"

    def commands(self, image: str, context: Path, *, push: bool, insecure: bool) -> list[list[str]]:
        output = f"type=image,name={image}" + (",push=true" if push else "")
        output += ",registry.insecure=true" if push and insecure else ""
        local = ["--local", f"context={context}", "--local", f"dockerfile={context}"]
        call = ["buildctl", "--addr", self.address, "build", "--progress", "plain", "--frontend", "dockerfile.v0"]
        return [[*call, *local, "--output", output]]


@dataclass(frozen=True)
class Buildah:
    name: str = "buildah"

    def commands(self, image: str, context: Path, *, push: bool, insecure: bool) -> list[list[str]]:
        build = ["buildah", "build", "--layers", "--tag", image, str(context)]
        verify = ["--tls-verify=false"] if insecure else []
        return [build, *([["buildah", "push", "--quiet", *verify, image]] if push else [])]


def chosen(name: str | None, address: str | None, answers: Answers, environ: Mapping[str, str] = os.environ) -> Builder:
    """The builder asked for, else the first that is here; raises `StartupError` where there is none."""
    address = address or environ.get("BUILDKIT_HOST")
    if name == "buildkit" and not address:
        raise StartupError("--builder buildkit needs an address: --buildkit-address tcp://HOST:PORT, or BUILDKIT_HOST")
    if name is not None:
        return _named(name, address, answers)
    candidates: tuple[tuple[Builder, list[list[str]]], ...] = (
        (BuildKit(address or ""), [["buildctl", "--version"]] if address else []),
        (Docker(), [["docker", "buildx", "version"], ["docker", "info"]]),
        (Buildah(), [["buildah", "--version"]]),
    )
    for builder, tests in candidates:
        if tests and all(answers(test) for test in tests):
            return builder
    raise StartupError("no builder is here: start Docker with buildx, give --buildkit-address, or install buildah")


def _named(name: str, address: str | None, answers: Answers) -> Builder:
    program = {"docker": "docker", "buildkit": "buildctl", "buildah": "buildah"}[name]
    if not answers([program, "--version"]):
        raise StartupError(f"--builder {name} needs the program {program}, which is not on PATH")
    if name == "docker" and not answers(["docker", "buildx", "version"]):
        raise StartupError("--builder docker needs Docker's buildx plugin: install docker-buildx-plugin")
    known: dict[str, Builder] = {"docker": Docker(), "buildah": Buildah(), "buildkit": BuildKit(address or "")}
    return known[name]


def succeeds(command: list[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=False)  # noqa: S603 - of the list above
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
