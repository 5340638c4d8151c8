"""A run that goes on from another job's: from its newest checkpoint, and without touching a file of it."""

import json
from collections.abc import Iterator

import pytest

from support.kube import Manifest, condition
from support.workspace import Workspace, example, json_lines

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

SOURCE, SEQUEL = "source", "sequel"
SECONDS = 480


@pytest.fixture(scope="module", autouse=True)
def _runs(workspace: Workspace) -> Iterator[None]:
    yield
    for name in (SEQUEL, SOURCE):
        workspace.delete(name)
        workspace.until_held(lambda held: not held, name, timeout=60)


def finished(workspace: Workspace, name: str) -> Manifest:
    job = workspace.until_job(name, lambda job: condition(job, "Finished")["status"] == "True", timeout=SECONDS)
    assert condition(job, "Succeeded")["status"] == "True", condition(job, "Failed")["message"]
    return job


def files(workspace: Workspace, job: Manifest) -> set[str]:
    """Name, size and last change of every file of a run's checkpoints and traces."""
    folders = " ".join(f"{volume}/{job['status']['runPath']}" for volume in ("checkpoints", "traces"))
    return set(workspace.read(f"find {folders} -type f -printf '%p %s %T@\\n'").splitlines())


def test_a_job_that_names_another_goes_on_from_its_newest_checkpoint_and_leaves_its_files_alone(
    workspace: Workspace,
) -> None:
    workspace.apply(example("job.yaml", {"trainer.config.numRollout": 2}, name=SOURCE))
    source = finished(workspace, SOURCE)
    before = files(workspace, source)
    changes = {"trainer.config.numRollout": 3, "resumeFrom": {"job": SOURCE}}
    workspace.apply(example("job.yaml", changes, name=SEQUEL))
    sequel = finished(workspace, SEQUEL)
    path = sequel["status"]["runPath"]
    assert path != source["status"]["runPath"]
    (claim,) = json.loads(workspace.read(f"cat checkpoints/{path}/index.json"))["claims"]
    assert (claim["attempt"], claim["incarnation"], claim["firstRollout"]) == (1, 1, 2)
    assert claim["resumedFrom"] == source["status"]["checkpoint"]["path"]
    assert condition(sequel, "Resumed")["reason"] == "ResumedFromCheckpoint"
    traces = workspace.files(f"traces/{path}", "*/metrics.jsonl")
    steps = [line["rollout_id"] for log in traces.values() for line in json_lines(log) if line["kind"] == "step"]
    assert steps == [2]
    assert files(workspace, source) == before
