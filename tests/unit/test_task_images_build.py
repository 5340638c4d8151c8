"""`images build`: which tasks are built under which name, and what one failure does to the others."""

import asyncio
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.sandboxes.images import SandboxConfig
from harborrl_agent_server.task_images.build import Done, Plan, build, run
from harborrl_agent_server.task_images.builders import Answers, Buildah, Builder, BuildKit, Docker, chosen
from harborrl_agent_server.task_images.listing import Wanted, wanted
from harborrl_agent_server.task_images.registry import Registries
from support.agent_http import eventually, serving
from support.agent_tasks import write_task
from support.registry_double import DIGEST, RegistryDouble


@dataclass
class Script:
    """Builds by a shell line; `{image}` is in the registry afterwards."""

    double: RegistryDouble
    line: str = "true"
    name: str = "script"
    built: list[str] = field(default_factory=list)

    def commands(self, image: str, context: Path, *, push: bool, insecure: bool) -> list[list[str]]:
        self.built.append(f"{image} {push} {insecure}")
        if push:
            self.double.images[image.split("/", 1)[1]] = 200
        return [["/bin/sh", "-c", f"cd {shlex.quote(str(context))}; {self.line}"]]


def tasks(root: Path, template: str, **images: object) -> list[Wanted]:
    config = SandboxConfig.model_validate({"images": {"template": template, **images}})
    return list(wanted(root, config, None))


async def results(found: list[Wanted], builder: Script, logs: Path, *, push: bool = True) -> list[Done]:
    told: list[Done] = []
    async with httpx.AsyncClient(timeout=20) as client:
        plan = Plan(builder, Registries(client, lambda _: None), push, frozenset(), 2, logs)
        done = await build(found, plan, told.append)
    assert {one.line() for one in told} == {one.line() for one in done}
    return done


async def test_what_the_registry_has_under_the_contents_name_is_not_built_again(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks", "first")
    write_task(tmp_path / "tasks", "second")
    double = RegistryDouble({})
    async with serving(double.app) as url:
        template = url.removeprefix("http://") + "/tasks/{task}:{hash}"
        builder = Script(double)
        for states in (["built", "built"], ["there", "there"]):
            done = await results(tasks(tmp_path / "tasks", template), builder, tmp_path / "logs")
            assert [one.state for one in done] == states
            assert [one.digest for one in done] == [DIGEST] * 2
        (tmp_path / "tasks" / "second" / "environment" / "Dockerfile").write_text("FROM scratch\n# changed\n")
        done = await results(tasks(tmp_path / "tasks", template), builder, tmp_path / "logs")
        assert [one.state for one in done] == ["there", "built"]
    assert len(builder.built) == 3
    assert all(line.endswith("True True") for line in builder.built)  # loopback has no TLS


async def test_one_that_fails_says_why_and_stops_no_other(tmp_path: Path) -> None:
    for name in ("bad", "good", "plain"):
        write_task(tmp_path / "tasks", name)
    (tmp_path / "tasks" / "bad" / "environment" / "fail").touch()
    (tmp_path / "tasks" / "plain" / "environment" / "Dockerfile").unlink()
    double = RegistryDouble({})
    async with serving(double.app) as url:
        template = url.removeprefix("http://") + "/tasks/{task}:{hash}"
        builder = Script(double, "if [ -e fail ]; then echo step 1; echo the reason >&2; exit 3; fi")
        done = await results(tasks(tmp_path / "tasks", template), builder, tmp_path / "logs")
    assert [one.state for one in done] == ["failed", "built", "failed"]
    assert "ended with 3: the reason; all of it in" in done[0].said
    assert "has no Dockerfile" in done[2].said


async def test_a_registry_that_does_not_answer_is_not_pushed_to(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks")
    builder = Script(RegistryDouble({}))
    done = await results(tasks(tmp_path / "tasks", "127.0.0.1:9/{task}:{hash}"), builder, tmp_path / "logs")
    assert (done[0].state, builder.built) == ("failed", [])
    done = await results(tasks(tmp_path / "tasks", "127.0.0.1:9/{task}:{hash}"), builder, tmp_path / "logs", push=False)
    assert done[0].state == "built"


async def test_a_task_that_names_its_image_or_that_the_map_names_is_left_alone(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks", "mapped")
    write_task(tmp_path / "tasks", "own", environment='docker_image = "registry.example/own:1"')
    found = tasks(tmp_path / "tasks", "localhost/{task}:{hash}", map={"mapped": "registry.example/mapped:1"})
    builder = Script(RegistryDouble({}))
    done = await results(found, builder, tmp_path / "logs")
    assert [(one.state, one.image) for one in done] == [
        ("named", "registry.example/mapped:1"),
        ("named", "registry.example/own:1"),
    ]
    assert builder.built == []


async def test_tasks_of_the_same_content_under_the_same_name_are_built_once(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_task(tmp_path / "tasks", name)
    builder = Script(RegistryDouble({}))
    done = await results(tasks(tmp_path / "tasks", "localhost/tasks:{hash}"), builder, tmp_path / "logs", push=False)
    assert [one.state for one in done] == ["built", "built"]
    assert len(builder.built) == 1


async def test_a_name_that_no_image_can_have_is_said(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks", "Upper")
    builder = Script(RegistryDouble({}))
    (done,) = await results(tasks(tmp_path / "tasks", "localhost/{task}:{hash}"), builder, tmp_path / "logs")
    assert "lower-case" in done.said
    (done,) = await results(tasks(tmp_path / "tasks", "localhost/t:{task}-{hash}"), builder, tmp_path / "logs")
    assert done.state == "built"


async def test_a_build_that_is_cancelled_is_ended(tmp_path: Path) -> None:
    building = asyncio.ensure_future(run([sys.executable, "-c", PATIENT.format(place=tmp_path)], tmp_path / "log"))
    await eventually((tmp_path / "begun").exists)
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building
    assert (tmp_path / "ended").exists()


PATIENT = """
import pathlib, signal
place = pathlib.Path("{place}")
signal.signal(signal.SIGTERM, lambda *_: ((place / "ended").touch(), exit(1)))
(place / "begun").touch()
signal.pause()
"""


async def test_a_builder_that_is_not_installed_is_a_failure_of_its_task(tmp_path: Path) -> None:
    said = await run(["/nowhere/buildctl"], tmp_path / "log")
    assert said is not None
    assert "install it or choose another --builder" in said


def test_a_builder_is_the_one_asked_for_or_the_first_that_answers() -> None:
    def only(*names: str) -> Answers:
        return lambda command: command[0] in names

    assert chosen(None, "tcp://buildkit:1234", only("buildctl", "docker"), {}) == BuildKit("tcp://buildkit:1234")
    assert chosen(None, None, only("buildctl", "docker", "buildah"), {}) == Docker()
    assert chosen(None, None, only("buildah"), {}) == Buildah()
    with pytest.raises(StartupError, match="no builder is here"):
        chosen(None, None, only(), {})
    with pytest.raises(StartupError, match="BUILDKIT_HOST"):
        chosen("buildkit", None, only("buildctl"), {})


def test_the_commands_push_only_when_asked_and_name_a_registry_without_tls() -> None:
    context = Path("/tasks/a/environment")
    builders: tuple[Builder, ...] = (Docker(), BuildKit("tcp://b:1"), Buildah())
    for builder in builders:
        quiet = builder.commands("r/a:1", context, push=False, insecure=True)
        assert "push" not in " ".join(word for command in quiet for word in command)
        loud = [word for command in builder.commands("r/a:1", context, push=True, insecure=True) for word in command]
        assert any("push" in word for word in loud)
    assert "registry.insecure=true" in BuildKit("tcp://b:1").commands("r/a:1", context, push=True, insecure=True)[0][-1]
    assert "--tls-verify=false" in Buildah().commands("r/a:1", context, push=True, insecure=True)[1]
