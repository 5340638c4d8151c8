"""Whole trials through HTTP in Docker sandboxes on a real daemon."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from harborrl_agent_server.phases import Phase
from harborrl_agent_server.sandboxes.hosted_provider import HostedProvider
from harborrl_agent_server.settings import AGENTS
from support.agent_http import eventually, replies
from support.agent_server import MARKS, Stage, stage
from support.agent_tasks import write_task
from support.docker import IMAGE, docker, obstacle, provider, things_of
from support.held_trials import Gate

pytestmark = [pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "a daemon is there"), *MARKS[1:]]

HELLO = "```sh\necho hello > /app/greeting.txt\n```"

PROGRAM = """#!/usr/bin/env python3
import json, os, urllib.request
body = json.dumps({"model": "model", "messages": [{"role": "user", "content": "act"}]}).encode()
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
os.system(json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"])
"""
"""Stands in for mini-swe-agent: asks its model once, from inside, and does what it says."""

ENVIRONMENT = f'workdir = "/app"\ndocker_image = "{IMAGE}"'


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    root = tmp_path / "tasks"
    write_task(root, environment=ENVIRONMENT)
    write_task(root, "closed", environment=f'{ENVIRONMENT}\nnetwork_mode = "no-network"')
    write_task(root, "built")
    (root / "built" / "environment" / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN echo hello >/made\n")
    write_task(root, "nowhere", environment='workdir = "/app"\ndocker_image = "localhost:1/nowhere:7"')
    return root


def left(server: Stage) -> list[str]:
    """What the daemon still has of this process's trials."""
    marked = ("--quiet", "--filter", "label=harborrl.dev/trial")
    assert server.runs.live == set()
    return [*docker("ps", "--all", *marked).split(), *docker("network", "ls", *marked).split()]


@pytest.mark.parametrize("task", ["write-greeting", "closed"])
async def test_a_trial_earns_what_its_verifier_says(tasks: Path, task: str) -> None:
    async with stage(tasks, replies(HELLO, "TASK_DONE"), provider=provider(tasks)) as server:
        good = await server.run(instance_id=task)
        bad = await server.run(instance_id=task, agent_name="nop")
        assert left(server) == []
    assert (good["reward"], good["exit_status"]) == (1.0, "Submitted"), good
    assert (bad["reward"], bad["exit_status"], bad["eval_report"]) == (0.0, "Submitted", {"reward": 0.0}), bad


async def test_a_dockerfile_is_built_and_its_image_goes_with_the_trial(tasks: Path) -> None:
    async with stage(
        tasks, replies("```sh\ncp /made greeting.txt\n```", "TASK_DONE"), provider=provider(tasks)
    ) as server:
        answer = await server.run(instance_id="built")
        assert left(server) == []
    assert (answer["reward"], answer["exit_status"]) == (1.0, "Submitted"), answer


async def test_an_image_that_is_nowhere_is_no_sandbox(tasks: Path) -> None:
    async with stage(tasks, replies(""), provider=provider(tasks)) as server:
        answer = await server.run(instance_id="nowhere")
    assert (answer["exit_status"], answer["infra_failure"]) == ("SandboxUnavailable", True)
    assert "localhost:1/nowhere:7" in answer["message"]


async def test_a_container_that_somebody_removes_is_no_zero(tasks: Path) -> None:
    gate = Gate()
    async with stage(tasks, gate, provider=provider(tasks)) as server:
        run = asyncio.ensure_future(server.run())
        await eventually(lambda: [seen.phase for seen in server.runs.snapshot().live] == [Phase.RUNNING])
        docker("rm", "--force", *docker("ps", "--quiet", "--filter", "label=harborrl.dev/trial").split())
        gate.opened.set()
        answer = await run
        assert left(server) == []
    assert (answer["exit_status"], answer["infra_failure"]) == ("SandboxLost", True), answer


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING])
async def test_a_flush_leaves_nothing_on_the_daemon(tasks: Path, phase: Phase) -> None:
    async with stage(tasks, Gate(), provider=provider(tasks)) as server:
        runs = [asyncio.ensure_future(server.run()) for _ in range(3)]
        await eventually(lambda: {seen.phase for seen in server.runs.snapshot().live} == {phase})
        await server.client.post(f"{server.url}/flush", json={"session_server_instance_id": "instance-a"})
        answers = await asyncio.gather(*runs)
        assert left(server) == []
    assert {answer["exit_status"] for answer in answers} == {"Aborted"}


async def test_harbors_own_class_by_its_import_path_earns_and_leaves_the_same(tasks: Path) -> None:
    """As anybody's environment: with Harbor's project names and without our labels."""
    settings = replace(provider(tasks).settings, sandbox="harbor.environments.docker.docker:DockerEnvironment")
    hosted = HostedProvider.from_settings(settings)
    async with stage(tasks, replies(HELLO, "TASK_DONE"), provider=hosted) as server:
        good = await server.run()
        bad = await server.run(agent_name="nop")
        projects = [answer["trial_name"].lower() for answer in (good, bad)]
        assert [thing for name in projects for thing in things_of(f"{name}__env")] == []
    assert (good["reward"], good["exit_status"]) == (1.0, "Submitted"), good
    assert (bad["reward"], bad["exit_status"]) == (0.0, "Submitted"), bad


async def test_an_agent_in_a_sandbox_reaches_its_model(tasks: Path) -> None:
    environment = write_task(tasks, "inside") / "environment"
    (environment / "mini-swe-agent").write_text(PROGRAM)
    (environment / "Dockerfile").write_text(
        f"FROM {IMAGE}\nCOPY mini-swe-agent /usr/local/bin/\n"
        "RUN chmod 755 /usr/local/bin/mini-swe-agent && command -v python3\n"
    )
    script = replies("echo hello >/app/greeting.txt")
    host, own = "host.docker.internal", provider(tasks)
    async with stage(tasks, script, provider=own, gateway_host=host, allowed_agents=AGENTS) as server:
        answer = await server.run(instance_id="inside", agent_name="mini-swe-agent")
        assert len(server.session.requests) == 1, answer
    assert answer["reward"] == 1.0, answer


async def test_an_agent_in_a_sandbox_without_network_is_refused_with_a_reason(tasks: Path) -> None:
    host, own = "host.docker.internal", provider(tasks)
    async with stage(tasks, replies(""), provider=own, gateway_host=host, allowed_agents=AGENTS) as server:
        answer = await server.run(instance_id="closed", agent_name="mini-swe-agent")
    assert (answer["exit_status"], answer["infra_failure"]) == ("SandboxUnavailable", True)
    assert "NoWayToTheModel" in answer["message"]


@pytest.mark.parametrize("kind", ["docker", "harbor.environments.docker.docker:DockerEnvironment"])
async def test_a_reward_that_the_agent_planted_and_kept_is_not_taken(tasks: Path, kind: str) -> None:
    write_task(tasks, "planted", verify=":", environment=ENVIRONMENT)
    shim = "printf '#!/bin/sh\\n' >/usr/local/bin/rm; chmod +x /usr/local/bin/rm"
    plant = f"```sh\n{shim}; echo 1 >/logs/verifier/reward.txt\n```"
    ours = provider(tasks)
    chosen = ours if kind == "docker" else HostedProvider.from_settings(replace(ours.settings, sandbox=kind))
    async with stage(tasks, replies(plant, "TASK_DONE"), provider=chosen) as server:
        answer = await server.run(instance_id="planted")
    assert (answer["exit_status"], answer["reward"]) == ("VerifierError", 0.0), answer
