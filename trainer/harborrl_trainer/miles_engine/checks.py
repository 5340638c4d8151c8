"""What is looked at in Miles' container before Miles takes its minutes to load. Each failure is a TrainerError.

What does not need this container (data, tasks, checkpoints) was looked at before by the preflight pod and by whoever
wrote the plan. Ports and GPUs are looked at, never freed: what holds them is not ours.
"""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harborrl_trainer.errors import ConfigurationError, InfrastructureError
from harborrl_trainer.miles_engine.plan import Checks, Server

SERVER_WAIT_SECONDS = 60.0
NODES_WAIT_SECONDS = 1800.0
"""For the other pods of a cluster whose head is up: Miles' image has tens of gigabytes, and each node pulls its own."""
PARSER_SECONDS = 300.0
"""Miles imports SGLang and Megatron for it."""
PARSER_CHECK = Path(__file__).resolve().parents[1] / "launch" / "parser_check.py"
_PAUSE = 2.0
_NODES = """
import json, ray
ray.init(address="auto", log_to_driver=False, configure_logging=False)
alive = [node for node in ray.nodes() if node["Alive"]]
print(json.dumps([node["Resources"].get("GPU", 0) for node in alive]))
"""


class NotYetError(Exception):
    """A source that may answer later."""


@dataclass(frozen=True)
class Question:
    """A command line, as Miles will get it."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    root: Path
    """Miles' checkout."""


@dataclass(frozen=True)
class World:
    """What the checks ask, so that a test can answer."""

    health: Callable[[str], dict[str, Any]]
    """URL -> the agent server's health document; raises NotYetError."""
    local_gpus: Callable[[], int | None]
    """GPUs that this container sees; None when there is no telling."""
    ray_gpus: Callable[[], Sequence[float]]
    """GPUs of each node that has joined; raises NotYetError."""
    judge: Callable[[Question], tuple[str, str]]
    """The image's own argument parser: `accepted`, `refused` or `unknown`, and what it said."""
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic


def run_checks(checks: Checks, question: Question, world: World) -> list[str]:
    """Notices: what could not be checked, one sentence each."""
    notices = [check_source(question.root, checks.commit), check_arguments(question, world)]
    check_readable(checks.readable)
    check_ports(checks.ports)
    notices.append(check_local_gpus(checks.gpus_per_node, world))
    if checks.nodes > 1 or checks.gpus_per_node:
        await_nodes(checks, world)
    if checks.server:
        check_server(checks.server, world)
    return [notice for notice in notices if notice]


def check_source(root: Path, commit: str) -> str:
    found = head_of(root)
    if not commit or found is None:
        return f"{root} does not tell its commit: whether it is {commit[:9]} is not known" if commit else ""
    if not (found.startswith(commit) or commit.startswith(found)):
        raise ConfigurationError(
            f"trainer.image: {root} is Miles at {found[:9]}, but the job is written for {commit[:9]}; "
            "set config.milesSrcCommit to the image's commit or take an image of that commit"
        )
    return ""


def check_arguments(question: Question, world: World) -> str:
    """Before nodes are waited for: Miles would say the same, only later."""
    verdict, said = world.judge(question)
    if verdict == "refused":
        raise ConfigurationError(
            f"Miles: its own parser refuses the arguments ({said}); correct trainer.config, recipeArgs, extraArgs or "
            "the image"
        )
    return "" if verdict == "accepted" else f"Miles' own parser could not be asked beforehand ({said})"


def head_of(root: Path) -> str | None:
    """The commit of a git checkout, read without git."""
    folder = root / ".git"
    try:
        if folder.is_file():  # a worktree or a submodule
            folder = (root / folder.read_text().partition("gitdir:")[2].strip()).resolve()
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        name = head.partition(":")[2].strip()
        common = folder / "commondir"
        places = [folder, *([(folder / common.read_text().strip()).resolve()] if common.exists() else [])]
        return next((found for place in places if (found := _ref(place, name))), None)
    except OSError:
        return None


def _ref(folder: Path, name: str) -> str | None:
    if (folder / name).is_file():
        return (folder / name).read_text().strip()
    if not (folder / "packed-refs").is_file():
        return None
    lines = (folder / "packed-refs").read_text().splitlines()
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), None)


def check_readable(paths: Sequence[str]) -> None:
    """Opening is what tells: the user of Miles' image is not the one that the preflight pod ran as."""
    for path in map(Path, paths):
        try:
            for file in sorted(path.iterdir()) if path.is_dir() else [path]:
                if not file.is_dir():
                    os.close(os.open(file, os.O_RDONLY | os.O_NONBLOCK))
        except OSError as error:
            raise ConfigurationError(
                f"{error.filename or path}: cannot be read by user {os.geteuid()} ({error.strerror}); "
                "put it on its volume and let others read it (chmod -R a+rX)"
            ) from error


def check_ports(ports: Sequence[int]) -> None:
    for port in ports:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))  # noqa: S104 - as Miles binds it
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise
                raise InfrastructureError(
                    f"trainer.ports: port {port} of the head is taken ({error.strerror}); with hostNetwork give each "
                    "job on a node its own trainer.ports, else a new attempt gets a new pod"
                ) from error


def check_local_gpus(promised: int, world: World) -> str:
    if not promised:
        return ""
    found = world.local_gpus()
    if found is None:
        return "nvidia-smi is missing: how many GPUs the head has is known from Ray alone"
    if found < promised:
        raise InfrastructureError(
            f"trainer.gpusPerNode: the head sees {found} of {promised} GPUs; look at the device plugin and the node"
        )
    return ""


def await_nodes(checks: Checks, world: World) -> None:
    """Miles' placement group would wait for ever for what never comes."""
    until = world.now() + NODES_WAIT_SECONDS
    while True:
        try:
            nodes = world.ray_gpus()
            whole = sum(1 for gpus in nodes if gpus >= checks.gpus_per_node)
            if whole >= checks.nodes:
                return
            told = f"{len(nodes)} of {checks.nodes} nodes have joined, {whole} with {checks.gpus_per_node} GPUs"
        except NotYetError as error:
            told = str(error)
        if world.now() >= until:
            raise InfrastructureError(
                f"Ray: {told} after {NODES_WAIT_SECONDS:g} s; look at the trainer pods and their nodes"
            )
        world.sleep(_PAUSE)


def check_server(server: Server, world: World) -> None:
    until = world.now() + SERVER_WAIT_SECONDS
    while True:
        try:
            health = world.health(server.url)
            break
        except NotYetError as error:
            if world.now() >= until:
                raise InfrastructureError(
                    f"agent server: {error} for {SERVER_WAIT_SECONDS:g} s; look at its Deployment and Service"
                ) from error
        world.sleep(_PAUSE)
    capacity = health.get("capacity")
    if isinstance(capacity, int) and capacity < server.slots:
        field = "agentServer.maxConcurrent" if server.owned else "the shared server's --max-concurrent"
        raise ConfigurationError(
            f"agent server: it runs {capacity} trials at once and the job keeps {server.slots} in flight; raise "
            f"{field} to at least {server.slots} or take smaller batches"
        )


def ask_health(url: str) -> dict[str, Any]:
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"agentServer.url: {url} is no HTTP address")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url.rstrip('/')}/health", timeout=5) as answer:
            document = json.loads(answer.read())
    except (OSError, ValueError) as error:
        raise NotYetError(f"{url}/health does not answer ({error})") from error
    if not isinstance(document, dict) or document.get("status") not in ("ok", "degraded"):
        raise NotYetError(f"{url}/health is not ok")
    return document


def count_local_gpus() -> int | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    told = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - as found on PATH
    return sum(line.startswith("GPU ") for line in told.stdout.splitlines())


def count_ray_gpus() -> Sequence[float]:
    """Asked in a process of its own: a driver connects to Ray once, and that is Miles' to do."""
    command = [sys.executable, "-c", _NODES]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603 - our own text
    lines = told.stdout.strip().splitlines()
    if told.returncode or not lines:
        reason = told.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise NotYetError(f"cannot ask Ray for its nodes: {reason[0]}")
    return [float(gpus) for gpus in json.loads(lines[-1])]


def ask_parser(question: Question) -> tuple[str, str]:
    """In a process of its own: what Miles imports for it must not stay in the driver."""
    path = f"{question.root}:{question.environment.get('PYTHONPATH', '')}"
    try:
        told = subprocess.run(  # noqa: S603 - our own script
            [sys.executable, str(PARSER_CHECK)],
            input=json.dumps({"argv": list(question.argv), "depth": "parse"}),
            env={**question.environment, "PYTHONPATH": path.rstrip(":")},
            cwd=question.root,
            capture_output=True,
            text=True,
            timeout=PARSER_SECONDS,
            check=False,
        )
        answer = json.loads(told.stdout.strip().splitlines()[-1])
        return str(answer["verdict"]), str(answer["message"])
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
        return "unknown", f"{type(error).__name__}: {error}"


REAL = World(health=ask_health, local_gpus=count_local_gpus, ray_gpus=count_ray_gpus, judge=ask_parser)
