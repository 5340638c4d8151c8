"""The job document is read whole or refused in one line that names the field."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import JobDocument, parse_job, read_job
from support import jobs

CONTRACT = jobs.CONTRACTS / "job_document.json"


def document(**changes: Any) -> str:
    return json.dumps(jobs.document(**changes))


def test_the_contract_document_is_read_with_its_values() -> None:
    job = read_job(CONTRACT)
    assert job.config.lr == 3e-05
    assert job.config.rollout_batch_size * job.config.n_samples_per_prompt == job.agent_server.max_concurrent
    assert job.agent_server.budgets.total_seconds == 660
    assert job.data.tasks is not None
    assert job.data.tasks.root == Path("/mnt/tasks")
    assert job.progress_config_map == "quickstart-progress"


def test_every_field_of_the_contract_document_is_known_to_the_model() -> None:
    parsed = parse_job(CONTRACT.read_text()).model_dump(mode="json", by_alias=True)

    def missing(theirs: Any, ours: Any, path: str) -> list[str]:
        if not isinstance(theirs, dict) or not isinstance(ours, dict):
            return []
        absent = [f"{path}.{key}" for key in theirs if key not in ours]
        return absent + [hit for key in theirs.keys() & ours.keys() for hit in missing(theirs[key], ours[key], key)]

    assert missing(json.loads(CONTRACT.read_text()), parsed, "") == []


def test_an_unknown_field_is_ignored() -> None:
    assert parse_job(document(addedLater={"x": 1})).job.name == "quickstart"


def test_the_document_cannot_be_changed_after_it_was_read() -> None:
    job = parse_job(document())
    with pytest.raises(ValidationError):
        job.config.lr = 1.0


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"config__lr": "fast"}, "config.lr"),
        ({"config__rolloutBatchSize": 0}, "config.rolloutBatchSize"),
        ({"storage__traces": "traces"}, "storage.traces"),
        ({"runPath": "../other"}, "runPath"),
        ({"engine": "verl"}, "engine"),
        ({"schemaVersion": 2}, "schemaVersion"),
        ({"data": {"jsonl": None, "tasks": None}}, "data"),
        ({"data": {"jsonl": "/x.jsonl", "tasks": {"root": "/mnt/tasks"}}}, "data"),
        ({"agentServer__url": "agents:30000"}, "agentServer.url"),
        ({"agentServer__budgets__verifierSeconds": -1}, "agentServer.budgets.verifierSeconds"),
    ],
)
def test_a_wrong_field_is_named_by_its_path_in_one_line(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_job(document(**changes))
    assert f" {path}: " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 64


def test_text_that_is_no_json_is_refused_in_one_line() -> None:
    with pytest.raises(ConfigurationError, match="the document: Invalid JSON"):
        parse_job("{not json")


def test_a_missing_document_says_where_it_belongs(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"job\.json: cannot read .* HARBORRL_JOB"):
        read_job(tmp_path / "job.json")


def test_two_wrong_fields_are_counted() -> None:
    with pytest.raises(ConfigurationError, match=r"\(and 1 more\)"):
        parse_job(document(config__lr=-1, maxSeqLen=0))


def test_required_fields_alone_make_a_document() -> None:
    whole = json.loads(CONTRACT.read_text())
    required = {
        JobDocument.model_fields[name].alias
        for name in JobDocument.model_fields
        if JobDocument.model_fields[name].is_required()
    }
    job = parse_job(json.dumps({key: value for key, value in whole.items() if key in required}))
    assert job.rollout.agent_trial_timeout_seconds == 7200
