"""Which checkpoint the native engine goes on from when one is damaged or a volume does not answer."""

import json
from pathlib import Path

import pytest

from harborrl_trainer.checkpoints import StartPoint
from harborrl_trainer.errors import StorageError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.layout import RunLayout
from harborrl_trainer.native import checkpoint
from harborrl_trainer.native.run import begin
from support.jobs import job as make_job
from support.jobs import make_volumes


@pytest.fixture
def job(tmp_path: Path) -> JobDocument:
    make_volumes(tmp_path)
    return make_job(tmp_path)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(job: JobDocument) -> None:
    older, newer = _save(job, 3), _save(job, 7)
    _damage(newer)
    assert begin(job, 1, 2) == StartPoint(4, older)


def test_a_run_whose_every_checkpoint_is_damaged_does_not_begin_anew_in_silence(job: JobDocument) -> None:
    _damage(_save(job, 3))
    for incarnation in (2, 3):  # nor does it the next time, when the damage is known already
        with pytest.raises(StorageError, match="every checkpoint of this run is damaged"):
            begin(job, 1, incarnation)


def test_another_runs_damaged_checkpoint_is_named_and_left_alone(tmp_path: Path, job: JobDocument) -> None:
    other = _save(make_job(tmp_path, runPath="research/other-00000000"), 5)
    _damage(other)
    there = str(other.relative_to(job.storage.checkpoints))
    with pytest.raises(StorageError, match="resumeFrom"):
        begin(make_job(tmp_path, resumeFrom={"path": there}), 1, 1)
    assert (other / "complete.json").is_file()


def test_a_volume_that_does_not_answer_costs_no_checkpoint_its_mark(job: JobDocument) -> None:
    newest = _save(job, 3)
    mark = newest / "complete.json"
    mark.write_text(json.dumps({"files": {"x" * 300: 1}}))  # asked for, it is an OSError that is not "not found"
    with pytest.raises(OSError, match="too long"):
        begin(job, 1, 2)
    assert mark.is_file()


def test_a_checkpoint_tells_how_many_prompts_were_drawn(job: JobDocument) -> None:
    told = _save(job, 3, sample_group_index=64)
    assert checkpoint.prompts_drawn(StartPoint(4, told), batch_size=2) == 64
    assert checkpoint.prompts_drawn(StartPoint(6, _save(job, 5)), batch_size=2) == 12
    assert checkpoint.prompts_drawn(StartPoint(0, None), batch_size=2) == 0


def _save(job: JobDocument, rollout: int, **data_state: int) -> Path:
    layout = RunLayout.of(job).incarnation(1, 1)
    directory = checkpoint.prepare(layout, rollout)
    (directory / "model.safetensors").write_bytes(b"weights")
    return checkpoint.finish(layout, rollout, directory, {"trained": rollout + 1} | data_state)


def _damage(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(b"")
