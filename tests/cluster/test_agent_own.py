"""A job with an agent of the user's own, as examples/agents has it: its class comes from a ConfigMap."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from support.kube import condition
from support.workspace import EXAMPLES, Workspace, example, json_lines

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

AGENTS = EXAMPLES.parent / "agents"
NAME, MISSING = "own", "own-missing"
SAMPLES, TURNS = 2, 2
SECONDS = 600

CHANGES: dict[str, Any] = {
    "trainer.config.numRollout": 1,
    "trainer.config.rolloutBatchSize": 1,
    "trainer.config.nSamplesPerPrompt": SAMPLES,
    "trainer.config.globalBatchSize": SAMPLES,
    "agentServer.agentKwargs": {"max_turns": TURNS},
}


@pytest.fixture(scope="module", autouse=True)
def _agent(workspace: Workspace) -> Iterator[None]:
    workspace.kubectl.ok("create", "configmap", "commander", f"--from-file={AGENTS / 'commander.py'}")
    yield
    workspace.kubectl.ok("delete", "configmap", "commander")


@pytest.fixture(scope="module")
def trials(workspace: Workspace) -> Iterator[Mapping[str, bytes]]:
    workspace.apply(example("../agents/own-agent.yaml", CHANGES, name=NAME))
    job = workspace.until_job(NAME, lambda job: condition(job, "Succeeded")["status"] == "True", timeout=SECONDS)
    yield workspace.files(f"trials/{job['status']['runPath']}", "*.jsonl", "*/run.json")
    workspace.delete(NAME)
    workspace.until_held(lambda held: not held, NAME, timeout=60)


def test_every_trial_asked_the_jobs_model_and_was_graded(trials: Mapping[str, bytes]) -> None:
    records = [json.loads(content) for path, content in trials.items() if path.endswith("/run.json")]
    answers = [record["answer"] for record in records]
    assert len(answers) == SAMPLES
    assert not [answer for answer in answers if answer["infra_failure"]], answers
    assert all(1 <= answer["agent_metrics"]["turns"] <= TURNS for answer in answers)
    assert all("reward" in answer["eval_report"] for answer in answers)


def test_each_trial_is_a_sample_of_the_rollout(trials: Mapping[str, bytes]) -> None:
    assert len(json_lines(trials["a1/i1/trials/native.jsonl"])) == SAMPLES


def test_a_class_that_the_pod_lacks_is_told_in_the_jobs_condition(workspace: Workspace) -> None:
    changes = CHANGES | {"agentServer.agents": {"commander": "absent:Commander"}}
    workspace.apply(example("../agents/own-agent.yaml", changes, name=MISSING))
    job = workspace.until_job(
        MISSING, lambda job: condition(job, "AgentServerReady")["reason"] == "CrashLoop", timeout=120
    )
    assert "--agent commander=absent:Commander cannot be imported" in condition(job, "AgentServerReady")["message"]
    workspace.delete(MISSING)
    workspace.until_held(lambda held: not held, MISSING, timeout=60)
