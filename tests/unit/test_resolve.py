"""A job as written becomes the job document that every part reads."""

import json
from pathlib import Path
from typing import Any

import pytest

from harborrl_operator.resolve import resolve
from support import hrl

CONTRACT = json.loads((Path(__file__).resolve().parents[1] / "contract" / "job_document.json").read_text())


def document(changes: dict[str, Any] | None = None, base: dict[str, Any] = hrl.QUICKSTART_SPEC) -> dict[str, Any]:
    return resolve(hrl.job(changes, base=base), hrl.SETTINGS).document(attempt=1)


def differences(theirs: Any, ours: Any, path: str = "") -> list[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        absent = [f"{path}.{key} is missing" for key in theirs if key not in ours]
        return absent + [
            hit for key in theirs.keys() & ours.keys() for hit in differences(theirs[key], ours[key], f"{path}.{key}")
        ]
    return [] if theirs == ours else [f"{path} is {ours!r}, the contract has {theirs!r}"]


def test_the_quickstart_resolves_to_the_contract_document() -> None:
    assert differences(CONTRACT, document()) == []


def test_relative_paths_lie_below_their_volume_and_absolute_ones_stay() -> None:
    assert document()["model"]["path"] == "/mnt/models/SmolLM2-135M-Instruct"
    assert document({"model.path": "/opt/model"})["model"]["path"] == "/opt/model"
    assert document(base=hrl.DESIGN_SPEC)["data"] == {"jsonl": "/mnt/tasks/tb2_train.jsonl", "tasks": None}


def test_what_the_user_set_is_told_apart_from_documented_defaults() -> None:
    explicit = document(base=hrl.DESIGN_SPEC)["explicitConfig"]
    assert explicit == ["globalBatchSize", "nSamplesPerPrompt", "numRollout", "rolloutBatchSize", "saveInterval"]
    assert document(base=hrl.DESIGN_SPEC)["config"]["lr"] == 1e-06


def test_every_adjustment_has_its_reason() -> None:
    resolved = resolve(hrl.job(base=hrl.MINIMAL_SPEC), hrl.SETTINGS)
    made = {adjustment.field: adjustment.value for adjustment in resolved.adjustments}
    assert made["agentServer.maxConcurrent"] == "512"
    assert made["agentServer.sandbox.timeoutSeconds"] == "7500"
    assert made["trainer.config.evalInterval"] == "omitted"
    assert made["storage.models"] == "harborrl-data/models"
    assert all(adjustment.reason for adjustment in resolved.adjustments)


def test_async_implies_separate_rollout_and_evaluation_follows_the_eval_section() -> None:
    assert document({"trainer.mode": "async"})["config"]["colocate"] is False
    assert "evalInterval" not in document()["config"]
    assert document(base=hrl.DESIGN_SPEC)["config"]["evalInterval"] == 20


def test_the_engine_decides_image_and_gpus_unless_the_job_does() -> None:
    assert document()["gpusPerNode"] == 0
    assert document(base=hrl.MINIMAL_SPEC)["gpusPerNode"] == 8
    assert document(base=hrl.MINIMAL_SPEC)["image"] == "radixark/miles:dev-202604201238"
    assert document({"trainer.image": "mine:1"})["image"] == "mine:1"


def test_the_configuration_hash_ignores_suspend_and_generation_and_nothing_that_runs() -> None:
    def hashed(changes: dict[str, Any] | None = None, **more: Any) -> str:
        return resolve(hrl.job(changes, **more), hrl.SETTINGS).config_hash

    assert hashed() == hashed({"suspend": True}, generation=7)
    for change in (
        {"trainer.config.lr": 1.0},
        {"trainer.env": [{"name": "A", "value": "b"}]},
        {"storage.models": {"pvc": "x"}},
    ):
        assert hashed() != hashed(change)


@pytest.mark.parametrize(
    "changes",
    [
        {"agentServer.resources": {"limits": {"memory": "4Gi"}}},
        {"agentServer.image": "server:2"},
        {"agentServer.adminSecretRef": {"name": "other"}},
        {"agentServer.podOverrides": {"hostNetwork": True}},
    ],
    ids=str,
)
def test_an_edit_of_the_agent_server_is_an_edit_too(changes: dict[str, Any]) -> None:
    """Or it would restart the server under a running attempt."""
    assert resolve(hrl.job(changes), hrl.SETTINGS).config_hash != resolve(hrl.job(), hrl.SETTINGS).config_hash


def test_a_resume_names_the_other_runs_directory_or_the_users_path() -> None:
    assert document()["resumeFrom"] is None
    by_path = hrl.job({"resumeFrom": {"path": "research/old-1234"}})
    assert resolve(by_path, hrl.SETTINGS).document(1)["resumeFrom"] == {"path": "research/old-1234"}
    by_name = hrl.job({"resumeFrom": {"job": "old"}})
    assert resolve(by_name, hrl.SETTINGS, "research/old-9").document(1)["resumeFrom"] == {"path": "research/old-9"}


def test_no_secret_value_reaches_the_document() -> None:
    text = json.dumps(document({"trainer.env": [{"name": "TOKEN", "value": "canary-value"}]}))
    assert "canary-value" not in text
