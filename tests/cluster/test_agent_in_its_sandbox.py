"""A job whose agent runs inside its sandboxes: mini-swe-agent of the tools bundle asks the job's own model.

Its requests go from a sandbox pod through the network policies to the gateway of the agent server's pod, and from there
to the session server in the trainer. Needs the bundle's image on the node, as tests/cluster/test_agent_tools.py does.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from support.kube import condition
from support.workspace import Workspace, example, json_lines

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

NAME = "inside"
SAMPLES, TURNS = 2, 2
SECONDS = 600
"""Ten times what an idle machine of two cores needs: each trial imports a model library in its sandbox."""


ROOM = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}
"""The quickstart's tasks have 64 MiB, and the library that the agent imports takes 200."""

CHANGES: dict[str, Any] = {
    "trainer.maxSeqLen": 4096,
    "trainer.config.numRollout": 1,
    "trainer.config.rolloutBatchSize": 1,
    "trainer.config.nSamplesPerPrompt": SAMPLES,
    "trainer.config.globalBatchSize": SAMPLES,
    "agentServer.agentName": "mini-swe-agent",
    "agentServer.sandbox.podOverrides": {"containers": [{"name": "main", "resources": ROOM}]},
}
OPTIONS = {"config": "mini_textbased", "modelClass": "litellm_textbased", "stepLimit": TURNS}


@pytest.fixture(scope="module")
def trials(workspace: Workspace) -> Iterator[Mapping[str, bytes]]:
    job = example("job.yaml", CHANGES, name=NAME)
    job["spec"]["agentServer"]["agentKwargs"] = OPTIONS  # in place of the bash agent's
    workspace.apply(job)
    job = workspace.until_job(NAME, lambda job: condition(job, "Succeeded")["status"] == "True", timeout=SECONDS)
    path = job["status"]["runPath"]
    yield workspace.files(f"trials/{path}", "*.jsonl", "*/run.json", "*/agent/trajectory.json")
    workspace.delete(NAME)
    workspace.until_held(lambda held: not held, NAME, timeout=60)


def named(trials: Mapping[str, bytes], ending: str) -> list[Any]:
    return [json.loads(content) for path, content in trials.items() if path.endswith(ending)]


def test_every_trial_asked_the_jobs_model_and_was_graded(trials: Mapping[str, bytes]) -> None:
    answers = [record["answer"] for record in named(trials, "/run.json")]
    assert len(answers) == SAMPLES
    assert not [answer for answer in answers if answer["infra_failure"]], answers
    assert all(1 <= answer["agent_metrics"]["turns"] <= TURNS for answer in answers)
    assert all("reward" in answer["eval_report"] for answer in answers)


def test_the_trajectories_are_the_agents_own(trials: Mapping[str, bytes]) -> None:
    """A reply that its length cut off, which a model this small gives now and then, is not delivered to an agent."""
    kept = named(trials, "/agent/trajectory.json")
    assert [each["agent"]["name"] for each in kept] == ["mini-swe-agent"] * SAMPLES
    assert all([step["source"] for step in each["steps"][:2]] == ["system", "user"] for each in kept)
    assert all("/app/" in each["steps"][1]["message"] for each in kept)


def test_each_trial_is_a_sample_of_the_rollout(trials: Mapping[str, bytes]) -> None:
    records = json_lines(trials["a1/i1/trials/native.jsonl"])
    assert len(records) == SAMPLES
