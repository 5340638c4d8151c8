"""What the API server itself decides: nothing of ours runs while these tests do."""

from collections.abc import Iterator
from typing import Any

import pytest

from support import hrl
from support.kube import JOBS
from support.kubectl import Kubectl, operator_scaled_to_zero
from support.workspace import EXAMPLES, Workspace, example

pytestmark = pytest.mark.cluster

REFUSED = [
    ("timeouts", ["agentTrialTimeoutSeconds", "agentTimeoutSeconds"], {"rollout.agentTrialTimeoutSeconds": 7020}),
    ("capacity", ["maxConcurrent", "rolloutBatchSize", "nSamplesPerPrompt"], {"agentServer.maxConcurrent": 8}),
]
ADMITTED = [("minimal", hrl.MINIMAL_SPEC), ("glm47-tb2", hrl.DESIGN_SPEC), ("quickstart", hrl.QUICKSTART_SPEC)]


@pytest.fixture(scope="module", autouse=True)
def _no_operator(kubectl: Kubectl, workspace: Workspace) -> Iterator[None]:
    with operator_scaled_to_zero(kubectl):
        yield
        workspace.kubectl.ok("delete", "hrl", "bad-timeouts", "bad-capacity", "--ignore-not-found")


@pytest.mark.parametrize(("mistake", "fields", "_correction"), REFUSED)
def test_a_contradiction_is_refused_with_its_fields_named(
    workspace: Workspace, mistake: str, fields: list[str], _correction: dict[str, Any]
) -> None:
    answer = workspace.kubectl("apply", "--filename", str(EXAMPLES / "bad" / f"{mistake}.yaml"))
    assert answer.returncode != 0
    assert [field for field in fields if field not in answer.stderr] == []
    assert workspace.kube.get(JOBS, f"bad-{mistake}", workspace.namespace) is None


@pytest.mark.parametrize(("mistake", "_fields", "correction"), REFUSED)
def test_the_corrected_job_is_accepted(
    workspace: Workspace, mistake: str, _fields: list[str], correction: dict[str, Any]
) -> None:
    workspace.apply(example(f"bad/{mistake}.yaml", correction))
    assert workspace.job(f"bad-{mistake}")["spec"]["model"]["path"] == "SmolLM2-135M-Instruct"


@pytest.mark.parametrize(("name", "spec"), ADMITTED)
def test_the_documented_jobs_are_accepted(workspace: Workspace, name: str, spec: dict[str, Any]) -> None:
    manifest = {"apiVersion": JOBS[0], "kind": JOBS[1], "metadata": {"name": name}, "spec": spec}
    said = workspace.kubectl.ok("apply", "--dry-run=server", "--filename", "-", stdin=hrl.text(manifest))
    assert "(server dry run)" in said
