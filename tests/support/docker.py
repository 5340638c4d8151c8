"""Where tests find a Docker daemon, and sandboxes on it."""

import functools
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from harborrl_agent_server.sandboxes.docker_plan import PROJECT_LABEL, DockerConfig
from harborrl_agent_server.sandboxes.docker_provider import DockerProvider
from harborrl_agent_server.settings import Budgets, Settings

IMAGE = os.environ.get("HARBORRL_TEST_DOCKER_IMAGE", "localhost/harborrl/sandbox:dev")
"""An image that the daemon has, with a shell, tar and the usual small programs."""

BUDGETS = Budgets(environment_start_s=60, agent_setup_s=60, agent_timeout_s=120, verifier_s=60, cleanup_s=30)


@functools.cache
def obstacle() -> str:
    """Why no sandbox can be made here; empty where one can."""
    for words, missing in (
        (("info",), "no Docker daemon answers"),
        (("compose", "version"), "docker has no compose plugin"),
        (("image", "inspect", IMAGE), f"the Docker daemon has no image {IMAGE} (HARBORRL_TEST_DOCKER_IMAGE)"),
    ):
        try:
            done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=20)  # noqa: S603, S607 - words of this table
        except (FileNotFoundError, subprocess.TimeoutExpired):
            return missing
        if done.returncode or "Cannot connect" in done.stderr:
            return missing
    return ""


def docker(*words: str) -> str:
    """What the client prints. A test waits for it: nothing else happens meanwhile."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True, timeout=60).stdout  # noqa: S603, S607 - words of the tests


def state(container: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(docker("inspect", "--format", "{{json .}}", container))
    return document


def provider(folder: Path, *, port: int = 30000, **changes: Any) -> DockerProvider:
    settings = Settings(
        tasks_dir=folder,
        trials_dir=folder / "trials",
        sandbox="docker",
        sandbox_image=IMAGE,
        budgets=BUDGETS,
        pod_name=f"test-{os.getpid()}",
        port=port,
    )
    config = DockerConfig.model_validate(changes.pop("config", {}))
    return DockerProvider(replace(settings, **changes), config)


def containers(project: str) -> list[str]:
    return docker("ps", "--all", "--quiet", "--filter", f"label={PROJECT_LABEL}={project}").split()


def things_of(project: str) -> list[str]:
    """Containers, networks and volumes of a project."""
    marked = ("--quiet", "--filter", f"label={PROJECT_LABEL}={project}")
    networks, volumes = docker("network", "ls", *marked), docker("volume", "ls", *marked)
    return [*containers(project), *networks.split(), *volumes.split()]
