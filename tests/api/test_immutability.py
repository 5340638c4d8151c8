"""What a run was made from cannot change under it: the API server names the field and the way, operator absent."""

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from support import hrl
from support.leaves import FULL_SPEC, LEAVES, change_of, is_frozen

pytestmark = pytest.mark.api

Submit = Callable[..., subprocess.CompletedProcess[str]]

RUNNING: dict[str, Any] = {"phase": "Running", "trainer": {"rayCluster": "quickstart-a1"}}

FROZEN: list[tuple[str, dict[str, Any]]] = [
    ("spec.model", {"model.path": "another"}),
    ("spec.model", {"model.refLoad": "another_torch_dist"}),
    ("spec.data", {"data": {"jsonl": "other.jsonl"}}),
    ("spec.data", {"data.tasks.glob": "b*"}),
    ("spec.eval", {"eval": {"jsonl": "eval.jsonl"}}),
    ("spec.storage", {"storage.checkpoints": {"pvc": "other"}}),
    ("spec.rollout", {"rollout.agentTrialTimeoutSeconds": 1200}),
    ("spec.resumeFrom", {"resumeFrom": {"job": "other"}}),
    ("spec.queueName", {"queueName": "h200"}),
    ("spec.trainer", {"trainer.config.lr": 1e-4}),
    ("spec.trainer", {"trainer.config.klCoef": 0.1}),
    ("spec.trainer", {"trainer.nodes": 3}),
    ("spec.trainer", {"trainer.image": "other:1"}),
    ("spec.trainer", {"trainer.preset": "p"}),
    ("spec.trainer", {"trainer.extraArgs": "--lr 1"}),
    ("spec.trainer", {"trainer.env": [{"name": "A", "value": "b"}]}),
    ("spec.trainer", {"trainer.podOverrides": {"hostNetwork": True}}),
    ("spec.trainer", {"trainer.resources": {"requests": {"cpu": 1}}}),
    ("spec.checkpoint.keep", {"checkpoint.keep": 5}),
    ("spec.checkpoint.graceSeconds", {"checkpoint.graceSeconds": 31}),
    ("spec.agentServer.agentName", {"agentServer.agentName": "nop"}),
    ("spec.agentServer.adminSecretRef", {"agentServer.adminSecretRef": {"name": "other"}}),
    ("spec.agentServer.url", {"agentServer.url": "http://agents.team.svc:30000"}),
]

FREE: list[dict[str, Any]] = [
    {},
    {"suspend": True},
    {"retries.maxAttempts": 5},
    {"activeDeadlineSeconds": 3600},
    {"ttlSecondsAfterFinished": 60},
    {"progress": {"stallFactor": 5, "onStall": "Restart"}},
    {"checkpoint.suspendWaitSeconds": 60},
    {"trainer.startDeadlineSeconds": 60},
    {"agentServer.image": "agents:2", "agentServer.maxConcurrent": 16},
    {"agentServer.podOverrides": {"containers": []}},
    {"agentServer.sandbox.images.template": "{task}:1"},
]


def says(kubectl: Any, namespace: str, status: dict[str, Any]) -> None:
    """What the operator would have written."""
    patch = json.dumps({"status": status})
    kubectl.ok("patch", "hrl/quickstart", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)


@pytest.mark.parametrize(("field", "changes"), FROZEN, ids=str)
def test_a_field_that_the_run_was_made_from_is_refused_by_name(
    kubectl: Any, namespace: str, submit: Submit, field: str, changes: dict[str, Any]
) -> None:
    assert submit().returncode == 0
    says(kubectl, namespace, RUNNING)
    done = submit(changes)
    assert done.returncode != 0
    assert f"{field}: Forbidden: {field} cannot change while an attempt runs or after the end" in done.stderr
    assert "set spec.suspend: true, change it, and resume" in done.stderr


def test_each_field_of_the_schema_is_refused_or_free_as_it_is_classified(
    kubectl: Any, namespace: str, submit: Submit
) -> None:
    """The whole list by dry runs: what is not frozen by name must pass."""
    assert submit(base=FULL_SPEC).returncode == 0
    says(kubectl, namespace, RUNNING)
    said = {path: submit(change_of(path), "--dry-run=server", base=FULL_SPEC) for path in LEAVES}
    refused = {path for path, done in said.items() if "cannot change while an attempt runs" in done.stderr}
    other = {path: done.stderr for path, done in said.items() if done.returncode and path not in refused}
    assert other == {}
    assert refused == {path for path in LEAVES if is_frozen(path)} | {"workloadPriorityClass"}


def test_the_priority_can_change_while_the_job_waits_for_its_quota(
    kubectl: Any, namespace: str, submit: Submit
) -> None:
    queued = {"queueName": "h200", "workloadPriorityClass": "low"}
    assert submit(queued).returncode == 0
    says(kubectl, namespace, RUNNING)
    higher = submit(queued | {"workloadPriorityClass": "high"})
    assert "spec.workloadPriorityClass: Forbidden" in higher.stderr
    says(kubectl, namespace, RUNNING | {"phase": "Queued"})
    assert submit(queued | {"workloadPriorityClass": "high"}).returncode == 0
    assert "spec.queueName: Forbidden" in submit(queued | {"queueName": "other"}).stderr


@pytest.mark.parametrize("changes", FREE, ids=str)
def test_what_is_read_anew_in_every_pass_stays_free(
    kubectl: Any, namespace: str, submit: Submit, changes: dict[str, Any]
) -> None:
    assert submit().returncode == 0
    says(kubectl, namespace, RUNNING)
    done = submit(changes)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"phase": "Pending"},
        {"phase": "Refused"},
        {"phase": "StartingAgentServer"},
        {"phase": "Preflight"},
        {"phase": "Suspended", "trainer": {"rayCluster": "quickstart-a1"}},
        {"phase": "StartingTrainer", "attempt": 2, "trainer": {"releasedIncarnation": 0}},
    ],
    ids=["no status", "unseen", "refused", "agent server", "preflight", "suspended", "between two attempts"],
)
def test_everything_may_be_corrected_while_no_attempt_exists(
    kubectl: Any, namespace: str, submit: Submit, status: dict[str, Any]
) -> None:
    assert submit().returncode == 0
    if status:
        says(kubectl, namespace, status)
    every_field = {path: value for _, changes in FROZEN for path, value in changes.items() if path != "data.tasks.glob"}
    done = submit(every_field)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_run_that_is_over_keeps_what_it_was_made_from(
    kubectl: Any, namespace: str, submit: Submit, phase: str
) -> None:
    assert submit().returncode == 0
    says(kubectl, namespace, {"phase": phase, "finishedAt": "2026-01-01T00:00:00Z"})
    assert submit({"trainer.config.numRollout": 9}).returncode != 0
    assert submit({"ttlSecondsAfterFinished": 60}).returncode == 0


def test_a_value_that_is_taken_away_is_a_change_too(kubectl: Any, namespace: str, submit: Submit) -> None:
    more = {"eval": {"jsonl": "e.jsonl"}, "trainer.podOverrides": {"hostNetwork": True}}
    full = hrl.merged(hrl.QUICKSTART_SPEC, more)
    assert submit(base=full).returncode == 0
    says(kubectl, namespace, RUNNING)
    without = hrl.merged(full, {})
    del without["eval"]
    assert "spec.eval" in submit(base=without).stderr
    assert "spec.trainer" in submit(base=hrl.merged(full, {"trainer.podOverrides": {}})).stderr


def test_an_unchanged_manifest_applies_by_the_server_too(kubectl: Any, namespace: str) -> None:
    manifest = {
        "apiVersion": "harborrl.dev/v1alpha1",
        "kind": "HarborRLJob",
        "metadata": {"name": "quickstart", "namespace": namespace},
        "spec": hrl.DESIGN_SPEC,
    }
    arguments = ("apply", "--server-side", "--field-manager=argocd", "--filename", "-")
    kubectl.ok(*arguments, stdin=hrl.text(manifest))
    says(kubectl, namespace, RUNNING)
    kubectl.ok(*arguments, stdin=hrl.text(manifest))
    changed = hrl.merged(manifest, {"spec.model.type": "glm5"})
    assert "spec.model: Forbidden" in kubectl(*arguments, stdin=hrl.text(changed)).stderr


def test_the_operator_may_still_write_status(kubectl: Any, namespace: str, submit: Submit) -> None:
    assert submit().returncode == 0
    says(kubectl, namespace, RUNNING)
    says(kubectl, namespace, {"phase": "Succeeded", "finishedAt": "2026-01-01T00:00:00Z"})
