"""What is looked at in Miles' container before Miles takes its minutes to load. Each failure is a TrainerError.

What does not need this container (data, tasks, checkpoints) was looked at before by the preflight pod and by whoever
wrote the plan. Ports and GPUs are looked at, never freed: what holds them is not ours.
"""

import errno
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from harborrl_trainer.errors import ConfigurationError, InfrastructureError
from harborrl_trainer.miles_engine.checkout import check_imports, check_source
from harborrl_trainer.miles_engine.plan import Checks, Server
from harborrl_trainer.miles_engine.world import NotYetError, Question, World

SERVER_WAIT_SECONDS = 60.0
NODES_WAIT_SECONDS = 1800.0
"""For the other pods of a cluster whose head is up: Miles' image has tens of gigabytes, and each node pulls its own."""
_PAUSE = 2.0


def run_checks(checks: Checks, question: Question, world: World) -> list[str]:
    """Notices: what could not be checked, one sentence each."""
    imported = check_imports(question.root, question.environment.get("PYTHONPATH", ""))
    notices = [check_source(question.root, checks.commit), imported, check_arguments(question, world)]
    check_readable(checks.readable)
    check_ports(checks.ports)
    notices.append(check_local_gpus(checks.gpus_per_node, world))
    if checks.nodes > 1 or checks.gpus_per_node:
        await_nodes(checks, world)
    if checks.server:
        check_server(checks.server, world)
    return [notice for notice in notices if notice]


def check_arguments(question: Question, world: World) -> str:
    """Before nodes are waited for: Miles would say the same, only later."""
    answer = world.judge(question)
    if answer.verdict == "refused":
        raise ConfigurationError(
            f"Miles: its own parser refuses the arguments ({answer.said}); correct trainer.config, recipeArgs, "
            "extraArgs or the image"
        )
    return "" if answer.verdict == "accepted" else f"Miles' own parser could not be asked beforehand ({answer.said})"


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
                    "job on a node its own trainer.ports and --prometheus-port, else a new attempt gets a new pod"
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
