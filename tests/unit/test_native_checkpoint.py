"""Which checkpoint the native engine goes on from when one is damaged or a volume does not answer."""

import json
from pathlib import Path

import pytest

from harborrl_trainer import index
from harborrl_trainer.checkpoints import StartPoint, find_start
from harborrl_trainer.errors import StorageError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.layout import IncarnationId, RunLayout
from harborrl_trainer.native import checkpoint
from harborrl_trainer.native.run import begin
from support.jobs import job as make_job
from support.jobs import make_checkpoint, make_volumes


@pytest.fixture
def job(tmp_path: Path) -> JobDocument:
    make_volumes(tmp_path)
    return make_job(tmp_path)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(job: JobDocument) -> None:
    older, newer = _save(job, 3), _save(job, 7)
    _damage(newer)
    assert begin(job, 1, 2) == StartPoint(4, older)
    (claim,) = index.read_claims(RunLayout.of(job).index)
    assert claim.set_aside == (str(newer.relative_to(job.storage.checkpoints)),)


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


class TestPruning:
    """`keep` is 2; what goes, goes after a newer checkpoint was verified."""

    def prune(self, job: JobDocument, incarnation: int) -> list[str]:
        run = RunLayout.of(job)
        gone = checkpoint.prune(run, IncarnationId(1, incarnation), keep=2)
        return sorted(str(path.relative_to(run.checkpoints)) for path in gone)

    def test_counts_over_all_incarnations(self, job: JobDocument) -> None:
        for rollout in (1, 3):
            _save(job, rollout)
        begin(job, 1, 2)
        _save(job, 5, incarnation=2)
        assert self.prune(job, 2) == ["a1/i1/checkpoints/iter_0000001"]
        _save(job, 7, incarnation=2)
        assert self.prune(job, 2) == ["a1/i1/checkpoints/iter_0000003"]
        assert find_start(job).first_rollout == 8

    def test_waits_for_a_newer_one_that_is_whole(self, job: JobDocument) -> None:
        for rollout in (1, 3, 5):
            newest = _save(job, rollout)
        _damage(newest)
        assert self.prune(job, 1) == []

    def test_takes_what_earlier_incarnations_left_torn_damaged_or_overtaken(self, job: JobDocument) -> None:
        run = RunLayout.of(job)
        begin(job, 1, 1)
        _save(job, 1)
        torn = make_checkpoint(run.incarnation(1, 1).checkpoint(2), complete=False)
        half = checkpoint.prepare(run.incarnation(1, 1), 3)
        begin(job, 1, 2)
        overtaken = _save(job, 4)
        ahead = _save(job, 9)
        _save(job, 5, incarnation=2)
        self.prune(job, 2)
        assert [path for path in (torn, half, overtaken) if path.exists()] == []
        assert ahead.exists()  # its turn comes when the run has passed it
        assert find_start(job).first_rollout == 6

    def test_is_not_for_an_incarnation_that_was_overtaken(self, job: JobDocument) -> None:
        begin(job, 1, 1)
        for rollout in (1, 3):
            _save(job, rollout)
        begin(job, 1, 2)
        for rollout in (5, 7):
            _save(job, rollout)
        assert self.prune(job, 1) == []
        assert find_start(job).first_rollout == 4


def test_a_start_without_moments_is_told_and_one_with_them_too(job: JobDocument) -> None:
    saved = _save(job, 3)
    begin(job, 1, 2)
    (saved / checkpoint.OPTIMIZER).write_bytes(b"moments")
    begin(job, 1, 3)
    assert [claim.optimizer for claim in index.read_claims(RunLayout.of(job).index)] == [False, True]


def test_a_checkpoint_tells_how_many_prompts_were_drawn(job: JobDocument) -> None:
    told = _save(job, 3, sample_group_index=64)
    assert checkpoint.prompts_drawn(StartPoint(4, told), batch_size=2) == 64
    assert checkpoint.prompts_drawn(StartPoint(6, _save(job, 5)), batch_size=2) == 12
    assert checkpoint.prompts_drawn(StartPoint(0, None), batch_size=2) == 0


def _save(job: JobDocument, rollout: int, incarnation: int = 1, **data_state: int) -> Path:
    layout = RunLayout.of(job).incarnation(1, incarnation)
    directory = checkpoint.prepare(layout, rollout)
    (directory / "model.safetensors").write_bytes(b"weights")
    return checkpoint.finish(layout, rollout, directory, {"trained": rollout + 1} | data_state)


def _damage(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(b"")
