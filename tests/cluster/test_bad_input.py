"""Each way of getting a job wrong ends in a condition that says what to do, soon, and never in an endless Pending."""

import time
from collections.abc import Iterator

import pytest

from support.kube import condition
from support.workspace import EXAMPLES, Workspace

pytestmark = pytest.mark.cluster

SECONDS = 120
MISTAKES = {
    # file: condition, reason, what its message must say: the thing that is wrong and what to do
    "missing-model": ("Admitted", "ModelNotFound", ["SmolLM2-1.7B-Instruct", "model.path"]),
    "empty-tasks": ("Admitted", "NoTasks", ["task"]),
    "task-without-verifier": ("Admitted", "TaskWithoutVerifier", ["greet", "tests/test.sh"]),
    "prompt-without-task": ("Admitted", "TaskNotFound", ["train.jsonl", "instance_id"]),
    "unreachable-image": ("AgentServerReady", "ImagePullFailed", ["localhost/harborrl/no-such-image:dev"]),
    "unschedulable": ("TrainerReady", "Unschedulable", ["memory"]),
}


@pytest.fixture(scope="module")
def applied(workspace: Workspace) -> Iterator[float]:
    """All mistakes at once; when, on the monotonic clock."""
    files = [argument for mistake in MISTAKES for argument in ("--filename", str(EXAMPLES / "bad" / f"{mistake}.yaml"))]
    workspace.kubectl.ok("apply", *files)
    yield time.monotonic()
    workspace.kubectl.ok("delete", *files)
    for mistake in MISTAKES:
        workspace.until_held(lambda held: not held, f"bad-{mistake}", timeout=60)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_becomes_a_condition_that_says_what_to_do(workspace: Workspace, applied: float, mistake: str) -> None:
    kind, reason, words = MISTAKES[mistake]
    left = applied + SECONDS - time.monotonic()
    job = workspace.until_job(f"bad-{mistake}", lambda job: condition(job, kind)["reason"] == reason, timeout=left)
    found = condition(job, kind)
    assert found["status"] == "False"
    assert [word for word in words if word not in found["message"]] == []
    assert job["status"]["phase"] != "Pending"


@pytest.mark.parametrize("mistake", [mistake for mistake, (kind, *_) in MISTAKES.items() if kind == "Admitted"])
def test_a_refused_job_holds_no_trainer_and_says_so_in_one_line(
    workspace: Workspace, applied: float, mistake: str
) -> None:
    left = applied + SECONDS - time.monotonic()
    workspace.until_job(f"bad-{mistake}", lambda job: job["status"]["phase"] == "Refused", timeout=left)
    assert [thing for thing in workspace.held(f"bad-{mistake}") if thing.startswith("RayCluster")] == []
    line = workspace.kubectl.ok("get", "hrl", f"bad-{mistake}", "--no-headers")
    assert "Refused" in line
    assert MISTAKES[mistake][1] in line
