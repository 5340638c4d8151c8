"""`images check`, over HTTP against a registry that speaks the token flow."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from harborrl_agent_server.sandboxes.references import BadReferenceError, Reference, parsed
from harborrl_agent_server.task_images.check import Finding, check
from harborrl_agent_server.task_images.command import main
from harborrl_agent_server.task_images.credentials import Credentials, credentials, documents, files
from harborrl_agent_server.task_images.listing import Wanted
from harborrl_agent_server.task_images.registry import Registries
from support.agent_http import serving
from support.agent_tasks import write_task
from support.registry_double import DIGEST, PASSWORD, USER, RegistryDouble, basic


@pytest.mark.parametrize(
    ("text", "host", "repository", "manifest"),
    [
        ("python", "docker.io", "library/python", "latest"),
        ("python:3.13-slim", "docker.io", "library/python", "3.13-slim"),
        ("team/tasks:v1", "docker.io", "team/tasks", "v1"),
        ("index.docker.io/team/tasks", "docker.io", "team/tasks", "latest"),
        ("registry.example/a/b_c/d-e:1", "registry.example", "a/b_c/d-e", "1"),
        ("registry.example:5000/a", "registry.example:5000", "a", "latest"),
        ("localhost/harborrl/base:dev", "localhost", "harborrl/base", "dev"),
        ("[::1]:5000/a:1", "[::1]:5000", "a", "1"),
        (f"registry.example/a:1@{DIGEST}", "registry.example", "a", DIGEST),
    ],
)
def test_a_reference_is_read_as_container_runtimes_read_it(
    text: str, host: str, repository: str, manifest: str
) -> None:
    read = parsed(text)
    assert (read.host, read.repository, read.manifest) == (host, repository, manifest)


@pytest.mark.parametrize(
    "text", ["", "registry.example/Upper:1", "a:b:c", "a@sha256:12", "registry.example/", "a b", "-/a"]
)
def test_what_no_runtime_would_take_is_refused(text: str) -> None:
    with pytest.raises(BadReferenceError):
        parsed(text)


def test_the_hub_is_asked_at_its_own_address_and_loopback_without_tls() -> None:
    assert parsed("python").address == "registry-1.docker.io"
    assert [
        parsed(text).is_local for text in ("localhost:5000/a", "127.0.0.1:5000/a", "[::1]:5000/a", "r.example/a")
    ] == [
        True,
        True,
        True,
        False,
    ]


def wants(url: str, *names: str) -> list[Wanted]:
    host = url.removeprefix("http://")
    return [Wanted(f"task-{number}", Path(), f"{host}/{name}") for number, name in enumerate(names)]


async def findings(found: list[Wanted], known: Credentials | None = None) -> list[Finding]:
    async with httpx.AsyncClient(timeout=20) as client:
        return await check(found, Registries(client, lambda _: known))


async def test_missing_forbidden_and_failing_are_told_apart_and_each_has_a_remedy() -> None:
    double = RegistryDouble(
        {"team/tasks:1": 200, "team/private:1": 200, "team/busy:1": 503, "team/limited:1": 429},
        frozenset({"team/private"}),
    )
    async with serving(double.app) as url:
        found = await findings(
            wants(url, "team/tasks:1", "team/tasks:2", "team/private:1", "team/busy:1", "team/limited:1", "Team/x:1")
        )
    assert [(finding.state, finding.fine) for finding in found] == [
        ("found", True),
        ("missing", False),
        ("unauthorised", False),
        ("unreachable", False),
        ("unreachable", False),
        ("unresolved", False),
    ]
    assert found[0].digest == DIGEST
    assert "images build --push" in found[1].line()
    assert "docker login" in found[2].line()
    assert "HTTP 429" in found[4].line()
    assert all("\n" not in finding.line() for finding in found)


async def test_a_registry_that_is_not_there_is_no_missing_image() -> None:
    for found in await findings(wants("http://127.0.0.1:9", *(f"team/tasks:{number}" for number in range(40)))):
        assert found.state == "unreachable"
        assert "ConnectError" in found.said


async def test_a_host_that_takes_no_connection_is_waited_for_once() -> None:
    connections = 0

    def refuse(request: httpx.Request) -> httpx.Response:
        nonlocal connections
        connections += 1
        raise httpx.ConnectTimeout("too long", request=request)

    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as client:
        registries = Registries(client, lambda _: None)
        for number in range(5):
            answer = await registries.look(parsed(f"registry.example/team/tasks:{number}"))
            assert (answer.state.value, answer.said) == ("unreachable", "ConnectTimeout: too long")
    assert connections == 1


@pytest.mark.parametrize(
    ("known", "state"),
    [
        (Credentials(USER, PASSWORD), "found"),
        (Credentials(USER, "wrong"), "unauthorised"),
        (Credentials(identity_token="renewed"), "found"),
        (Credentials(identity_token="old"), "unauthorised"),
        (None, "unauthorised"),
    ],
)
async def test_a_private_repository_opens_to_the_right_credentials(known: Credentials | None, state: str) -> None:
    double = RegistryDouble({"team/private:1": 200}, frozenset({"team/private"}))
    async with serving(double.app) as url:
        (found,) = await findings(wants(url, "team/private:1"), known)
    assert found.state == state


async def test_a_registry_that_wants_a_password_itself_gets_it() -> None:
    async with serving(RegistryDouble({"team/tasks:1": 200}, scheme="Basic").app) as url:
        assert (await findings(wants(url, "team/tasks:1"), Credentials(USER, PASSWORD)))[0].state == "found"
        assert (await findings(wants(url, "team/tasks:1")))[0].state == "unauthorised"


async def test_tasks_that_share_an_image_ask_for_it_once() -> None:
    double = RegistryDouble({"team/tasks:1": 200})
    async with serving(double.app) as url:
        (found,) = await findings(wants(url, *["team/tasks:1"] * 5))
    assert len(found.tasks) == 5
    assert "and 4 more" in found.line()
    assert double.asked == ["team/tasks:1"] * 2  # refused once, then asked with a token


def test_credentials_come_from_the_first_file_that_knows_the_registry(tmp_path: Path) -> None:
    auth = basic("me", "se:cret").removeprefix("Basic ")
    docker = {
        "auths": {"https://r.example": {"auth": auth}, "broken.example": {"auth": "%"}},
        "credHelpers": {"h.example": "vault"},
    }
    (tmp_path / "config.json").write_text(json.dumps(docker))
    configs = documents(files({"DOCKER_CONFIG": str(tmp_path), "HOME": str(tmp_path)}))

    def helper(name: str, registry: str) -> str | None:
        return json.dumps({"Username": "<token>", "Secret": f"{name}@{registry}"})

    def ask(host: str) -> Credentials | None:
        return credentials(host, configs, helper)

    assert ask("r.example") == Credentials("me", "se:cret")
    assert ask("h.example") == Credentials(identity_token="vault@h.example")
    assert ask("broken.example") is None
    assert ask("other.example") is None
    assert "cret" not in repr(ask("r.example"))


async def run(*argv: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "harborrl_agent_server", "images", *argv),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), "HOME": "/nowhere", **(env or {})},
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def test_the_command_resolves_every_task_as_the_server_does(tmp_path: Path) -> None:
    async with serving(RegistryDouble({"team/own:1": 200, "team/mapped:1": 200, "team/verify:1": 404}).app) as url:
        host = url.removeprefix("http://")
        tasks = tmp_path / "tasks"
        write_task(tasks, "own", environment=f'docker_image = "{host}/team/own:1"')
        write_task(tasks, "mapped")
        write_task(tasks, "apart", toml=f'[verifier.environment]\ndocker_image = "{host}/team/verify:1"')
        write_task(tasks, "broken", environment="cpus = 'many'")
        (tasks / "notes").mkdir()
        job = {
            "kind": "HarborRLJob",
            "spec": {"agentServer": {"sandbox": {"images": {"map": {"mapped": f"{host}/team/mapped:1"}}}}},
        }
        (tmp_path / "job.yaml").write_text("---\nkind: ConfigMap\n---\n" + json.dumps(job))
        code, output = await run("check", "--tasks", str(tasks), "--job", str(tmp_path / "job.yaml"))
        lines = output.splitlines()
    assert code == 1, output
    assert f"{host}/team/own:1 {DIGEST}" in lines
    assert f"{host}/team/mapped:1 {DIGEST}" in lines
    assert any(line.startswith(f"missing: {host}/team/verify:1 of apart") for line in lines)
    assert any("unresolved: - of apart: NoImage" in line for line in lines)
    assert any("of broken: Harbor refuses its task.toml; correct it" in line for line in lines)
    assert lines[-1] == "2 of 5 images of 4 tasks"


async def test_json_is_one_document_and_all_found_is_success(tmp_path: Path) -> None:
    async with serving(RegistryDouble({"team/tasks:1": 200}).app) as url:
        write_task(tmp_path / "tasks")
        image = f"{url.removeprefix('http://')}/team/tasks:1"
        code, output = await run("check", "--tasks", str(tmp_path / "tasks"), "--sandbox-image", image, "--json")
    document: list[dict[str, Any]] = json.loads(output)
    assert code == 0
    assert document == [{"image": image, "tasks": ["write-greeting"], "state": "found", "digest": DIGEST, "said": ""}]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["check", "--tasks", "/nowhere/at/all"], "--tasks /nowhere/at/all: give the folder"),
        (["check"], "neither --tasks nor HARBOR_TASKS_DIR names the folder"),
        (["check", "--tasks", "TASKS", "--sandbox-config", "{"], "--sandbox-config is not JSON"),
        (["check", "--tasks", "TASKS", "--sandbox-config", '{"images": {"template": "{name}"}}'], "images.template"),
        (["check", "--tasks", "TASKS", "--job", "TASKS/write-greeting/task.toml"], "--job"),
        (["build", "--tasks", "TASKS"], "--template"),
        (["build", "--tasks", "TASKS", "--template", "r/{x}"], "template"),
    ],
)
def test_what_cannot_be_carried_out_is_said_in_one_line(
    argv: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_task(tmp_path)
    assert main([word.replace("TASKS", str(tmp_path)) for word in argv]) == 64
    output = capsys.readouterr().err
    assert said in output
    assert output.count("\n") == 1


def test_a_server_that_starts_imports_nothing_of_it() -> None:
    code = (
        "import harborrl_agent_server.__main__, harborrl_agent_server.serve, sys;"
        " print([name for name in sys.modules if 'task_images' in name])"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)  # noqa: S603 - our own line
    assert told.stdout.strip() == "[]"


def test_a_digest_outranks_a_tag() -> None:
    assert Reference("r", "a", tag="1", digest=DIGEST).manifest == DIGEST


async def test_a_task_without_an_image_is_told_once_what_to_do(tmp_path: Path) -> None:
    write_task(tmp_path, "made")
    write_task(tmp_path, "plain")
    (tmp_path / "plain/environment/Dockerfile").unlink()
    code, output = await run("check", env={"HARBOR_TASKS_DIR": str(tmp_path)})
    made, plain, _ = output.splitlines()
    assert (code, made.count("--sandbox-image"), plain.count("--sandbox-image")) == (1, 1, 1), output
    assert ("images build" in made, "images build" in plain) == (True, False)
    assert "neither --tasks nor" in (await run("check", env={"HARBOR_TASKS_DIR": ""}))[1]
