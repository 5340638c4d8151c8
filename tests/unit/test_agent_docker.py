"""Docker sandboxes and a daemon that hangs, refuses or is away: nothing waits for ever, nothing is booked wrongly."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from harbor.models.task.config import NetworkPolicy

from harborrl_agent_server import bounded
from harborrl_agent_server.errors import (
    SandboxLostError,
    SandboxResourceError,
    SandboxStartError,
    SandboxTransportError,
    SandboxUnusableError,
    StartupError,
)
from harborrl_agent_server.sandboxes.docker import DockerSandbox
from harborrl_agent_server.sandboxes.docker_plan import DockerConfig
from harborrl_agent_server.sandboxes.docker_provider import DockerProvider
from harborrl_agent_server.sandboxes.docker_pulse import Pulse
from harborrl_agent_server.settings import JobIdentity, Settings
from harborrl_agent_server.spending import Spending
from support.fake_docker import GONE, HANGS, FakeDocker
from support.sandbox_suite import built


@pytest.fixture
def docker(tmp_path: Path) -> FakeDocker:
    folder = tmp_path / "bin"
    folder.mkdir()
    return FakeDocker(folder)


@pytest.fixture
def provider(tmp_path: Path, docker: FakeDocker) -> DockerProvider:
    settings = Settings(
        tasks_dir=tmp_path,
        trials_dir=tmp_path / "trials",
        sandbox="docker",
        pod_name="host",
        job=JobIdentity("research", "quick", "u"),
        max_concurrent=8,
    )
    return DockerProvider(settings, DockerConfig(), docker.engine)


@pytest.fixture
def sandbox(tmp_path: Path, provider: DockerProvider) -> DockerSandbox:
    """One that runs, as far as it knows."""
    made = built(provider, tmp_path, NetworkPolicy(), docker_image="image:1")
    assert isinstance(made, DockerSandbox)
    made._container, made._asked, made.up = "c0ffee", True, True
    return made


@pytest.fixture
def unstarted(
    tmp_path: Path, provider: DockerProvider, docker: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> DockerSandbox:
    monkeypatch.setenv("PATH", docker.engine.environ["PATH"])
    monkeypatch.setattr("harborrl_agent_server.sandboxes.docker.SETTLE_SECONDS", 0)
    made = built(provider, tmp_path, NetworkPolicy(), docker_image="image:1")
    assert isinstance(made, DockerSandbox)
    return made


async def test_no_question_waits_longer_than_its_limit(docker: FakeDocker) -> None:
    docker.answers("ps", HANGS)
    with pytest.raises(SandboxTransportError, match="docker ps: no answer from the daemon within 0 s"):
        await docker.engine.ask("ps", limit_s=0.2)


async def test_a_daemon_that_is_away_is_no_answer(docker: FakeDocker) -> None:
    docker.answers("inspect", GONE)
    with pytest.raises(SandboxTransportError, match="Cannot connect"):
        await docker.engine.state("c0ffee")


@pytest.mark.parametrize(
    ("words", "lines", "said"),
    [
        ("info", GONE, "Cannot connect to the Docker daemon.*; start the daemon, correct DOCKER_HOST"),
        ("info", """echo '{"ServerErrors":["permission denied"]}'""", "permission denied; start the daemon"),
        ("info", """echo '{"OSType":"windows"}'""", "runs windows containers; switch it to Linux"),
        ("compose", "echo \"docker: 'compose' is not a docker command.\" >&2; exit 1", "needs the compose plugin"),
    ],
)
async def test_what_a_server_cannot_work_with_stops_it_in_one_line(
    provider: DockerProvider, docker: FakeDocker, words: str, lines: str, said: str
) -> None:
    docker.answers(words, lines)
    with pytest.raises(StartupError, match=said) as refused:
        await provider.open()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"pidslimit": 5}, "--sandbox-config pidslimit: Extra inputs are not permitted"),
        ({"pidsLimit": 5}, "--sandbox-config pidsLimit: Input should be greater than or equal to 64"),
        ({"nodeSelector": {"a": "b"}}, "nodeSelector is of pods; remove it"),
    ],
)
def test_a_configuration_that_would_be_ignored_is_refused(
    provider: DockerProvider, config: dict[str, object], said: str
) -> None:
    with pytest.raises(StartupError, match=said):
        DockerProvider.from_settings(replace(provider.settings, sandbox_config=config))


async def test_too_few_networks_for_the_slots_are_told_with_their_number(
    provider: DockerProvider, docker: FakeDocker, caplog: pytest.LogCaptureFixture
) -> None:
    docker.answers("network ls", 'case "$*" in *driver=bridge*) echo one;; esac')
    with caplog.at_level(logging.WARNING):
        await provider.open()
    await provider.close()
    assert "room for 3 more networks and --max-concurrent is 8" in caplog.text


async def test_a_start_sweeps_by_the_servers_own_name(provider: DockerProvider, docker: FakeDocker) -> None:
    docker.answers("ps", 'case "$*" in *agent-server=host-30000*) echo old;; *project=old*) echo c1 c2;; esac')
    await provider.open()
    await provider.close()
    assert "rm --force --volumes c1 c2" in docker.asked()


async def test_an_image_that_cannot_be_pulled_is_named(provider: DockerProvider, docker: FakeDocker) -> None:
    docker.answers("image inspect", "exit 1")
    docker.answers("pull", "echo 'pull access denied for image' >&2; exit 1")
    with pytest.raises(SandboxStartError, match="ImagePullFailed: image:1: pull access denied"):
        await provider.present("image:1")


async def test_eight_trials_of_an_image_pull_it_once(provider: DockerProvider, docker: FakeDocker) -> None:
    docker.answers("image inspect", f"test -e {docker.folder}/pulled")
    docker.answers("pull", f"touch {docker.folder}/pulled")
    await asyncio.gather(*(provider.present("image:1") for _ in range(8)))
    assert [words for words in docker.asked() if words.startswith("pull")] == ["pull --quiet image:1"]


@pytest.mark.parametrize(
    ("code", "state", "error"),
    [
        (1, '{"Running":true}', SandboxTransportError),
        (255, '{"Running":true}', SandboxTransportError),
        (127, '{"Running":true}', SandboxUnusableError),
        (137, '{"Running":false,"ExitCode":137}', SandboxLostError),
        (137, '{"Running":false,"ExitCode":137,"OOMKilled":true}', SandboxResourceError),
        (1, "", SandboxLostError),
    ],
)
async def test_a_command_whose_end_was_not_told_is_judged_by_its_container(
    sandbox: DockerSandbox, docker: FakeDocker, code: int, state: str, error: type[Exception]
) -> None:
    docker.answers("exec", f"exit {code}")
    docker.answers("inspect", f"echo '{state}'" if state else "echo 'no such object' >&2; exit 1")
    with pytest.raises(error):
        await sandbox.exec("true")
    assert isinstance(sandbox.scope.fault, error)


async def test_the_code_that_the_sandbox_told_stands_whatever_the_client_says(
    sandbox: DockerSandbox, docker: FakeDocker
) -> None:
    docker.answers(
        "exec", 'while [ "$1" != -c ]; do shift; done; echo "words of the daemon" >&2; echo "$4:3;" >&2; exit 255'
    )
    result = await sandbox.exec("true")
    assert (result.return_code, result.stderr) == (3, "words of the daemon\n\n")


async def test_a_removal_that_hangs_costs_no_answer_and_is_tried_again(
    sandbox: DockerSandbox, docker: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harborrl_agent_server.sandboxes.docker.DESTROY_SECONDS", 0.3)
    release = docker.folder / "release"
    docker.answers("ps", f"while [ ! -e {release} ]; do sleep 0.05; done")
    await sandbox.stop(delete=True)
    assert sandbox.left
    monkeypatch.undo()
    docker.answers("ps", "echo c1")
    await sandbox.destroy()
    assert not sandbox.left
    assert "rm --force --volumes c1" in docker.asked()
    release.touch()
    await asyncio.gather(*bounded._KEPT)


async def test_containers_stay_where_their_owner_wants_to_look_at_them(
    sandbox: DockerSandbox, docker: FakeDocker
) -> None:
    environ = {**docker.engine.environ, "HARBOR_DELETE_CONTAINERS": "false"}
    sandbox.provider = DockerProvider.from_settings(sandbox.provider.settings, environ)
    docker.answers("ps", "echo c1")
    await sandbox.stop(delete=True)
    await sandbox.provider.close()
    assert docker.asked()[-1] == "stop --time 1 c1"
    assert not sandbox.left


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("could not find an available, non-overlapping IPv4 address pool among the defaults", "AddressPoolsFull"),
        ("all predefined address pools have been fully subnetted", "AddressPoolsFull"),
        ("write /x: no space left on device", "DiskFull"),
        ('could not select device driver "nvidia" with capabilities: [[gpu]]', "GpuUnavailable"),
        ("error during connect: EOF", "DaemonUnreachable"),
        ("service main has neither an image nor a build context", "ComposeFailed"),
    ],
)
async def test_what_compose_says_becomes_a_reason_and_an_advice(
    unstarted: DockerSandbox, docker: FakeDocker, said: str, reason: str
) -> None:
    docker.answers("compose", f"echo ' main Starting'; echo '{said}'; exit 1")
    with pytest.raises(SandboxStartError, match=f"{reason}: docker compose up: .*; ") as refused:
        await unstarted.start(force_build=False)
    assert said in str(refused.value)
    await unstarted.stop(delete=True)


async def test_a_start_that_hangs_ends_with_its_budget(unstarted: DockerSandbox, docker: FakeDocker) -> None:
    docker.answers("compose", HANGS)
    unstarted.scope.spending = Spending(replace(unstarted.provider.settings.budgets, environment_start_s=0.5))
    with pytest.raises(SandboxStartError, match="NotReady: not up within"):
        await unstarted.start(force_build=False)
    await unstarted.stop(delete=True)
    assert not unstarted.left


async def test_a_silent_daemon_ends_what_runs_there_and_one_late_answer_does_not() -> None:
    away = asyncio.Event()

    async def ask() -> None:
        if away.is_set():
            raise SandboxTransportError("no answer")

    pulse = Pulse(ask)
    away.set()
    command = asyncio.ensure_future(pulse.unless_silent(asyncio.Event().wait()))
    await pulse.beat()
    await asyncio.wait({command}, timeout=0.05)
    assert not command.done()
    await pulse.beat()
    with pytest.raises(SandboxTransportError, match="does not answer any more"):
        await command
    away.clear()
    await pulse.beat()
    assert await pulse.unless_silent(asyncio.sleep(0, "done")) == "done"
