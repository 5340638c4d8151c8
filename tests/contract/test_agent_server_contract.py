"""The wire of docs/contracts.md, as the fixtures that both sides are tested against have it."""

import json
from pathlib import Path
from typing import Any

import pytest

from harborrl_agent_server.contract import ExitStatus, Health, RunRequest, RunResponse
from harborrl_agent_server.sandboxes.images import SandboxConfig
from harborrl_agent_server.settings import AGENTS as SERVED
from harborrl_agent_server.settings import settings_from
from harborrl_operator.constants import GATEWAY_PORT
from harborrl_operator.resolve import ResolvedJob, resolve
from harborrl_operator.resources.agent_server import deployment
from harborrl_operator.sandbox_defaults import AGENTS
from support import hrl
from support.agent_http import replies
from support.agent_server import MARKS, stage
from support.agent_tasks import write_task

FIXTURES = Path(__file__).parent

pytestmark = MARKS


def fixture(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())
    return document


def arguments(job: ResolvedJob, trials: Path) -> list[str]:
    (container,) = deployment(job, {})["spec"]["template"]["spec"]["containers"]
    return [str(trials) if word.startswith("/mnt/trials/") else word for word in container["args"]]


def test_the_request_is_read_and_its_data_set_columns_are_dropped() -> None:
    sent = fixture("run_request")
    request = RunRequest.model_validate(sent)
    assert "task_difficulty" not in request.model_dump()
    assert request.model_dump(include=sent.keys() - {"task_difficulty"}) == {
        key: value for key, value in sent.items() if key != "task_difficulty"
    }


def test_the_operator_admits_the_agents_that_this_server_runs_for_training() -> None:
    assert set(AGENTS) == set(SERVED)


@pytest.mark.parametrize("agent", AGENTS)
def test_the_server_starts_with_what_the_operator_tells_it(agent: str, tmp_path: Path) -> None:
    job = resolve(hrl.job({"agentServer.agentName": agent, "agentServer.rewardKey": "passed"}), hrl.SETTINGS)
    settings = settings_from(arguments(job, tmp_path), {"HARBOR_TASKS_DIR": str(tmp_path), "POD_IP": "10.1.2.3"})
    assert (settings.allowed_agents, settings.allowed_model_hosts) == ((agent,), (job.trainer_host,))
    assert (settings.gateway_host, settings.gateway_port) == ("10.1.2.3", GATEWAY_PORT)
    config = SandboxConfig.model_validate(settings.sandbox_config)
    assert config.timeout_seconds == job.sandbox["timeoutSeconds"]


def test_the_server_takes_agents_of_the_users_own_as_the_operator_tells_them(tmp_path: Path) -> None:
    own = {"agentName": "mine", "agents": {"mine": "pkg.mod:Class", "a-2": "b:C"}, "allowedAgents": ["mine", "bash"]}
    job = resolve(hrl.job({f"agentServer.{field}": value for field, value in own.items()}), hrl.SETTINGS)
    settings = settings_from(arguments(job, tmp_path), {"HARBOR_TASKS_DIR": str(tmp_path), "POD_IP": "10.1.2.3"})
    assert (settings.own_agents, settings.allowed_agents) == (own["agents"], ("mine", "bash"))


def test_the_response_fixture_is_one_of_ours() -> None:
    sent = fixture("run_response")
    assert RunResponse.model_validate(sent).model_dump(include=set(sent)) == sent


def test_the_health_fixture_is_one_of_ours() -> None:
    sent = fixture("health")
    assert Health.model_validate(sent).model_dump() == sent


def test_the_vocabulary_is_the_one_in_the_contract() -> None:
    text = (FIXTURES.parents[1] / "docs" / "contracts.md").read_text()
    section = text.split("`exit_status` is one of:")[1].split("`reward` is meaningful")[0]
    named = {word.strip("`,()") for word in section.split() if word.startswith("`") and word.strip("`,()")[0].isupper()}
    assert named == {status.value for status in ExitStatus}


async def test_a_live_answer_has_the_fields_of_the_fixture_with_their_types(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    write_task(tasks)
    async with stage(tasks, replies("```sh\necho hello >/app/greeting.txt\n```", "TASK_DONE")) as server:
        request = {**fixture("run_request"), "base_url": f"{server.session_url}/sessions/s/v1"}
        answer = (await server.client.post(f"{server.url}/run", json=request)).json()
        health = await server.health()
        assert server.session.requests[0]["seed"] == 17
    for wanted, got in ((fixture("run_response"), answer), (fixture("health"), health)):
        assert {key: type(value) for key, value in wanted.items() if key != "oldest_trial_s"}.items() <= {
            key: type(value) for key, value in got.items()
        }.items()
    assert answer["agent_metrics"].keys() == fixture("run_response")["agent_metrics"].keys()
    assert answer["phase_seconds"].keys() == fixture("run_response")["phase_seconds"].keys()
