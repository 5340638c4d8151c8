"""The images that a folder of tasks would run, by the server's own rule."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from harbor.environments.definition import environment_content_hash
from harbor.models.task.config import EnvironmentConfig, StepConfig, TaskConfig
from harbor.models.task.paths import TaskPaths
from harbor.models.task.verifier_mode import resolve_verifier_environment_definition

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.images import TAG_HASH, SandboxConfig, image_names, image_of
from harborrl_agent_server.tasks import INSTANCE_ID

TO_BUILD = "`images build --template` builds its Dockerfile, the same template in agentServer.sandbox.images names it"


@dataclass(frozen=True)
class Wanted:
    """One sandbox of a task. `image` is empty where `problem` says why there is none."""

    task: str
    """Its directory; with `/tests` behind it, its verifier's own."""
    folder: Path
    """What its image is built from."""
    image: str = ""
    problem: str = ""
    named: bool = False
    """By the task itself or the map, so that it is nothing to build here."""

    @property
    def buildable(self) -> bool:
        return (self.folder / "Dockerfile").is_file()


def wanted(tasks_dir: Path, config: SandboxConfig, fallback: str | None) -> Iterator[Wanted]:
    """In the order of names; a folder without `task.toml` is no task."""
    for task in sorted(path for path in tasks_dir.iterdir() if (path / "task.toml").is_file()):
        if not INSTANCE_ID.fullmatch(task.name):
            yield Wanted(
                task.name, task, problem="no instance_id can name it; rename it: letters, digits, '.', '_', '-'"
            )
            continue
        try:
            read = TaskConfig.model_validate_toml((task / "task.toml").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            yield Wanted(task.name, task, problem=f"Harbor refuses its task.toml; correct it: {first_line(error)}")
            continue
        found = []
        for environment, folder, own_tests in environments(task, read):
            names = image_names(task.name, short_name(task, read), own_tests=own_tests)
            found.append(_image(names, environment, folder, config, None if own_tests else fallback))
        yield from dict.fromkeys(found)


def environments(task: Path, read: TaskConfig) -> list[tuple[EnvironmentConfig, Path, bool]]:
    """The agent's, and the verifier's where it has its own; last, whether it brings its tests."""
    paths = TaskPaths(task)
    found = [(read.environment, paths.environment_dir, False)]
    steps: list[StepConfig | None] = [*(read.steps or ())] or [None]
    for step in steps:
        own = resolve_verifier_environment_definition(read, paths, step, validate_inputs=False)
        if own is not None:
            found.append((own.config, own.directory, own.bundled_tests))
    return found


def short_name(task: Path, read: TaskConfig) -> str:
    """Harbor's name of an environment: what the task calls itself, else its directory."""
    return str(read.task.short_name) if read.task is not None else task.name


def _image(
    names: list[str], environment: EnvironmentConfig, folder: Path, config: SandboxConfig, fallback: str | None
) -> Wanted:
    """With its first name for its task's."""
    content = environment_content_hash(folder, docker_image=environment.docker_image)[:TAG_HASH]
    named = bool(environment.docker_image) or any(name in config.images.map for name in names)
    try:
        image = image_of(environment, names, content, config, fallback)
    except SandboxStartError as error:
        found = Wanted(names[0], folder, problem=str(error))
        return replace(found, problem=f"{error}; {TO_BUILD}") if found.buildable else found
    return Wanted(names[0], folder, image, named=named or not config.images.template)


def first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
