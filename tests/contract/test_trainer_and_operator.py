"""What the operator writes the trainer reads, and what the trainer reports the operator understands."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from harborrl_operator.constants import Cause
from harborrl_operator.constants import Reason as OperatorReason
from harborrl_operator.crd import custom_resource_definition
from harborrl_operator.engine_checks import NATIVE_READS
from harborrl_operator.models.status import ResumeStatus
from harborrl_operator.progress import Progress, read_progress
from harborrl_operator.resolve import resolve
from harborrl_operator.resources.config_maps import stop_request
from harborrl_trainer.job import ResolvedConfig, TrainingConfig, parse_job
from harborrl_trainer.layout import IncarnationId, RunLayout
from harborrl_trainer.preflight.findings import Reason
from harborrl_trainer.supervisor.requests import wanted_stop
from harborrl_trainer.supervisor.verdict import Cause as DriverCause
from support import hrl, jobs
from support.supervision import Pod

SANDBOX_ALONE = {
    f".agentServer.sandbox.{name}"
    for name in (
        "allocator",
        "allowSameNamespace",
        "claims",
        "idleTimeoutSeconds",
        "images.pullSecrets",
        "namespace",
        "nodeSelector",
        "podOverrides",
        "priorityClassName",
        "runtimeClassName",
        "timeoutSeconds",
        "tolerations",
        "tools",
        "warmPool",
    )
}
"""What only the agent server's sandboxes go by."""

WARNINGS = {
    "AgentServerDegraded",
    "BudgetsUnknown",
    "CapacityUnknown",
    "CheckpointIncomplete",
    "ParserNotAsked",
    "ReservedKeysStripped",
}
"""Reasons that only warn: the operator quotes their message and never shows them as a condition's reason."""


@pytest.mark.parametrize(
    "spec", [hrl.QUICKSTART_SPEC, hrl.MINIMAL_SPEC, hrl.DESIGN_SPEC], ids=["quickstart", "minimal", "design"]
)
def test_every_document_that_the_operator_resolves_is_read_by_the_trainer(spec: dict[str, Any]) -> None:
    resolved = resolve(hrl.job(base=spec), hrl.SETTINGS)
    document = resolved.document(attempt=1)
    job = parse_job(json.dumps(document))
    assert job.run_path == resolved.job.names.run_path
    assert job.config.num_rollout == document["config"]["numRollout"]
    assert RunLayout.of(job).index.is_relative_to(job.storage.checkpoints)


@pytest.mark.parametrize(
    "spec", [hrl.QUICKSTART_SPEC, hrl.MINIMAL_SPEC, hrl.DESIGN_SPEC], ids=["quickstart", "minimal", "design"]
)
def test_no_field_of_a_resolved_document_is_lost_on_the_trainer(spec: dict[str, Any]) -> None:
    document = resolve(hrl.job(base=spec), hrl.SETTINGS).document(attempt=1)
    kept = parse_job(json.dumps(document)).model_dump(mode="json", by_alias=True)

    def lost(theirs: Any, ours: Any, path: str) -> list[str]:
        if not isinstance(theirs, dict) or not isinstance(ours, dict):
            return []
        return [f"{path}.{key}" for key in theirs if key not in ours] + [
            name for key in theirs.keys() & ours.keys() for name in lost(theirs[key], ours[key], f"{path}.{key}")
        ]

    assert set(lost(document, kept, "")) <= SANDBOX_ALONE


async def test_the_operator_understands_the_supervisors_reports(tmp_path: Path) -> None:
    jobs.make_volumes(tmp_path)
    pod = Pod(tmp_path)
    pod.clock.at(5, lambda: pod.dump(pod.mine().rollout_file(0)))
    pod.clock.at(30, lambda: pod.end_driver(64, "model.path: gone; put it back\n"))
    await pod.supervise(60)
    read = read_progress(json.dumps(pod.cluster.last), pod.cluster.last["uid"])
    assert isinstance(read, Progress)
    assert (read.driver.state, read.failure_class) == ("FAILED", "configuration")
    assert read.driver_message == "model.path: gone; put it back"
    assert read.rollout is not None
    assert read.rollout.collected == 1
    assert read.driver.submission_id == "quickstart-a1-i1"


def test_the_operator_knows_which_hyper_parameters_the_native_engine_reads() -> None:
    assert set(TrainingConfig.model_fields) == NATIVE_READS


def test_the_trainer_reads_every_hyper_parameter_that_the_api_server_admits() -> None:
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    trainer = schema["properties"]["trainer"]["properties"]
    refused = []
    for name, field in trainer["config"]["properties"].items():
        for end in ("minimum", "maximum"):
            if end in field and not field.get(f"exclusive{end.title()}"):
                try:
                    ResolvedConfig.model_validate({name: field[end]})
                except ValidationError:
                    refused.append(f"{name}: {field[end]}")
    assert refused == []
    document = json.loads((jobs.CONTRACTS / "job_document.json").read_text())
    assert parse_job(json.dumps(document | {"maxSeqLen": trainer["maxSeqLen"]["minimum"]})).max_seq_len == 2


def test_the_operator_reads_the_contracts_report_to_its_last_field() -> None:
    read = read_progress((jobs.CONTRACTS / "progress.json").read_text(), "5f0c2a9e-8a1d-4a53-9a36-0b6f1f8e7d10")
    assert isinstance(read, Progress)
    assert read.driver.started_at == "2026-01-01T00:01:10Z"
    assert read.resume == ResumeStatus(first_rollout=1, optimizer=True)
    assert read.checkpoint is not None
    assert read.checkpoint.saved_at == "2026-01-01T00:01:50Z"
    assert read.agent_server is not None
    assert read.agent_server.oldest_trial_since == "2026-01-01T00:02:58Z"
    assert {role: volume.low for role, volume in read.volumes.items()} == dict.fromkeys(
        ("checkpoints", "traces", "trials"), False
    )


def test_the_supervisor_hears_the_request_that_the_operator_writes() -> None:
    job = hrl.job()
    written = json.loads(stop_request(job, "r", 1, 2)["data"]["request"])
    assert written.keys() == json.loads((jobs.CONTRACTS / "request.json").read_text()).keys()
    assert wanted_stop(written, job.uid, IncarnationId(1, 2)) == "r"


def test_the_operator_knows_every_cause_that_a_driver_may_end_by() -> None:
    assert set(get_args(DriverCause.__value__)) <= {cause.value for cause in Cause}


def test_the_operator_knows_every_reason_with_which_a_preflight_refuses() -> None:
    assert set(get_args(Reason.__value__)) - WARNINGS <= {str(reason) for reason in OperatorReason}
