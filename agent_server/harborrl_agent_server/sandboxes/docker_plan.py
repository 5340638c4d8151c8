"""What a trial's Docker project holds, and what the daemon's words mean: pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_network
from typing import Any, Self

import yaml
from pydantic import ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from harborrl_agent_server.sandboxes import commands
from harborrl_agent_server.sandboxes.images import SandboxConfig, quantity
from harborrl_agent_server.settings import JobIdentity

MAIN = "main"
"""Harbor's name of the service that is the sandbox."""

PROJECT_LABEL = "com.docker.compose.project"
"""Compose puts it on all that it makes."""

SERVER_LABEL = "harborrl.dev/agent-server"
TRIAL_LABEL = "harborrl.dev/trial"

HOST_NAME = "host.docker.internal"
"""The daemon's machine as its containers see it."""

BUILT_IN_NETWORKS = 31
"""Fifteen /16 and sixteen /20: what a daemon without `default-address-pools` has, its own bridge included."""

DAEMON_GONE = re.compile(
    r"Cannot connect to the Docker daemon|error during connect|Is the docker daemon running"
    r"|dial unix .*: connect:|unexpected EOF|http: server closed idle connection",
    re.IGNORECASE,
)

REASONS = (
    (DAEMON_GONE, "DaemonUnreachable", "start the Docker daemon, or correct DOCKER_HOST"),
    (
        re.compile(r"pull access denied|manifest unknown|no such image|repository does not exist|ErrImage|Pulling"),
        "ImagePullFailed",
        "check the image's name and its registry, or load it with `docker load`",
    ),
    (
        re.compile(r"non-overlapping IPv4 address pool|predefined address pools have been fully subnetted"),
        "AddressPoolsFull",
        "give the daemon more default-address-pools, or lower --max-concurrent",
    ),
    (re.compile(r"no space left on device"), "DiskFull", "make room in the daemon's data-root"),
    (
        re.compile(r"could not select device driver"),
        "GpuUnavailable",
        "install the NVIDIA Container Toolkit on the daemon's machine",
    ),
)


OF_DOCKER = {"images", "limits", "defaults", "build", "allowlist", "pids_limit"}


class DockerConfig(SandboxConfig):
    """`--sandbox-config` of Docker sandboxes: `images`, `limits`, `defaults` as for pods, and what only Docker has."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)

    build: bool = True
    """Whether a task's Dockerfile is built when nothing names an image for it; slow at first, cached afterwards."""
    allowlist: bool = False
    """Whether tasks with an allow-list run, behind Harbor's filter: it takes two images of Docker Hub."""
    pids_limit: int = Field(default=4096, ge=64)
    """Processes of one sandbox: without a limit a fork bomb takes the machine."""

    @model_validator(mode="after")
    def _of_docker_alone(self) -> Self:
        """Nobody but its owner writes it, so what would be ignored is a mistake."""
        of_pods = sorted(self.model_fields_set - OF_DOCKER)
        if of_pods:
            raise ValueError(f"{to_camel(of_pods[0])} is of pods; remove it")
        return self


def labels(job: JobIdentity, *, server: str, life: str, trial: str) -> dict[str, str]:
    """On all that a trial has on the daemon. `life` tells one process of a server from the next."""
    own = {SERVER_LABEL: server, "harborrl.dev/incarnation": life, TRIAL_LABEL: trial}
    if job:
        own |= {"harborrl.dev/job-namespace": job.namespace, "harborrl.dev/job-name": job.name}
    return own


def services(files: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The services of a task's own compose files by name, later files over earlier ones."""
    found: dict[str, dict[str, Any]] = {}
    for text in files:
        document = yaml.safe_load(text)
        listed = document.get("services") if isinstance(document, dict) else None
        for name, service in (listed or {}).items():
            found[str(name)] = found.get(str(name), {}) | (service if isinstance(service, dict) else {})
    return found


def overlay(
    own: Mapping[str, Mapping[str, Any]],
    *,
    marks: Mapping[str, str],
    limits: Mapping[str, str],
    pids_limit: int,
    cut_off: bool,
    reaches_host: bool,
) -> dict[str, Any]:
    """The last compose file of a trial: it marks everything, bounds the sandbox and gives it a first process.

    Raises ValueError for a limit that is no quantity.
    """
    main: dict[str, Any] = {"pids_limit": pids_limit}
    if not own_first_process(own):
        main["entrypoint"] = [commands.SHELL, "-c", commands.IDLE.replace("$", "$$")]
    if "memory" in limits:
        size = int(quantity(limits["memory"]))
        main |= {"mem_limit": size, "memswap_limit": size}
    if "cpu" in limits:
        main["cpus"] = float(quantity(limits["cpu"]))
    if cut_off:
        main["network_mode"] = "none"
    elif reaches_host:
        main["extra_hosts"] = {HOST_NAME: "host-gateway"}
    marked: dict[str, Any] = {name: {"labels": dict(marks)} for name in {*own, MAIN}}
    marked[MAIN] |= main
    networks = {} if cut_off else {"networks": {"default": {"labels": dict(marks)}}}
    return {"services": marked, **networks}


def own_first_process(own: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the task's compose file says itself what the sandbox's first process is."""
    return any(own.get(MAIN, {}).get(key) for key in ("command", "entrypoint", "init"))


def reason_of(said: str) -> tuple[str, str]:
    """Why Docker did not start a sandbox, and what to do about it."""
    for pattern, reason, advice in REASONS:
        if pattern.search(said):
            return reason, advice
    return "ComposeFailed", "look at trial.log of the trial"


def last_words(said: str, limit: int = 500) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return (lines[-1] if lines else "no reason given")[-limit:]


def networks_in(pools: Sequence[Mapping[str, Any]] | None) -> int:
    """How many networks a daemon's address pools hold; `pools` as `docker info` shows them."""
    if not pools:
        return BUILT_IN_NETWORKS
    held = [(ip_network(str(pool["Base"]), strict=False), int(pool["Size"])) for pool in pools]
    return sum(2 ** max(size - base.prefixlen, 0) for base, size in held if base.version == 4)
