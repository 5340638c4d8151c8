"""A volume that fills up while something is written to it: the class of the failure, its words, and what is left."""

import errno
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from ray.exceptions import RayTaskError

from harborrl_trainer import index, leftovers
from harborrl_trainer.errors import StorageError
from harborrl_trainer.failures import failure_of
from harborrl_trainer.job import JobDocument
from harborrl_trainer.layout import IncarnationId, RunLayout
from harborrl_trainer.native import checkpoint, records
from harborrl_trainer.native.run import begin
from harborrl_trainer.preflight.storage import check_volume, clear_leftovers
from harborrl_trainer.rollout.outcomes import aborted
from harborrl_trainer.rollout.trial_log import TrialLog, trial_record
from harborrl_trainer.rollout.trials import TrialEnd, TrialHistory
from harborrl_trainer.space import MIB
from harborrl_trainer.writing import writing
from support.descriptors import open_here
from support.findings import only_message, told
from support.jobs import job as make_job
from support.jobs import make_volumes
from support.small_volume import fill, small_volume

TORCH = "[enforce fail at inline_container.cc:671] . unexpected pos 576 vs 534"
STREAM = "basic_ios::clear: iostream error"
SAFETENSORS = "Error while serializing: I/O error: No space left on device (os error 28)"
FULL = os.strerror(errno.ENOSPC)
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("error", "mebibytes", "says"),
    [
        (RuntimeError(TORCH), 0, f"{FULL} (0 MiB are free); make room"),
        (RuntimeError(STREAM), 0, f"{FULL} (0 MiB are free); make room"),
        (RuntimeError(TORCH), 900, "a write failed (900 MiB are free)"),
        (RuntimeError(SAFETENSORS), 900, f"{FULL} (900 MiB are free)"),
        (OSError(errno.EDQUOT, "x"), 900, "make room below the quota or raise it"),
        (OSError(errno.EROFS, "x"), 900, "mounted read-only"),
        (OSError(errno.EIO, "x"), 900, "repair the volume"),
    ],
)
def test_a_write_that_the_volume_refused_is_told_as_the_volumes(
    tmp_path: Path, error: Exception, mebibytes: int, says: str
) -> None:
    with pytest.raises(StorageError, match=r"\A[^\n]+\Z") as raised, writing(tmp_path, lambda _: mebibytes * MIB):
        raise error
    assert str(raised.value).startswith(f"{tmp_path}: ")
    assert says in str(raised.value)


@pytest.mark.parametrize("error", [RuntimeError("shape mismatch"), PermissionError(errno.EACCES, "no")])
def test_what_fails_beside_a_roomy_volume_stays_what_it_is(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)) as raised, writing(tmp_path, lambda _: 900 * MIB):
        raise error
    assert raised.value is error


def from_ray(cause: Exception) -> Exception:
    """As `ray.get` raises what an actor raised."""
    text = "ray::PolicyActor.save() (pid=562, actor_id=0x7f)\n    ~~~~^^^^\nRuntimeError: basic_ios::clear"
    told_by_ray: Any = RayTaskError
    raised = told_by_ray("save", text, cause, proctitle="ray", pid=1, ip="10.0.0.1").as_instanceof_cause()
    assert isinstance(raised, Exception)
    return raised


def test_ray_adds_no_carets_and_no_addresses_to_what_an_actor_says() -> None:
    failure = failure_of(from_ray(StorageError("/mnt/checkpoints: full; make room")))
    assert (failure.exit_code, failure.sentence) == (74, "/mnt/checkpoints: full; make room")
    unknown = failure_of(from_ray(ValueError("bad value")))
    assert (unknown.exit_code, unknown.sentence.partition(";")[0]) == (1, "ValueError: bad value")


def test_a_dump_that_finds_no_room_is_a_storage_failure_and_leaves_nothing(tmp_path: Path) -> None:
    with small_volume(tmp_path / "traces", 1) as volume:
        with pytest.raises(StorageError, match=FULL):
            records.dump(volume / "run" / "0.pt", {"samples": torch.zeros(MIB)})
        assert list((volume / "run").iterdir()) == []
        with pytest.raises(StorageError, match=FULL):
            records.dump_lines(volume / "run" / "0.jsonl", [{"text": "x" * 2 * MIB}])
        assert list((volume / "run").iterdir()) == []


def test_a_line_that_fits_in_part_is_a_failure_and_not_lost_in_silence(tmp_path: Path) -> None:
    with small_volume(tmp_path / "traces", 1) as volume, pytest.raises(StorageError, match=FULL):
        records.append_line(volume / "metrics.jsonl", {"text": "x" * 2 * MIB})


def test_a_trial_that_cannot_be_logged_names_the_log(tmp_path: Path) -> None:
    end = TrialEnd[object](aborted("x" * 2 * MIB), outcome="x", session="s")
    record = trial_record(
        TrialHistory(end),
        now=datetime(2026, 1, 1, tzinfo=UTC),
        rollout_id=0,
        group_id=0,
        sample_id=0,
        instance_id="task",
        drop_reason="",
    )
    with small_volume(tmp_path / "trials", 1) as volume:
        log = TrialLog(volume / "native.jsonl")
        with pytest.raises(OSError, match=FULL) as raised:
            log.append(record)
        log.close()
    assert failure_of(raised.value).exit_code == 74
    assert str(tmp_path / "trials" / "native.jsonl") in failure_of(raised.value).sentence


def test_a_torn_log_that_cannot_be_repaired_names_itself_and_stays_closed(tmp_path: Path) -> None:
    with small_volume(tmp_path / "trials", 1) as volume:
        (volume / "native.jsonl").write_bytes(b"x" * PAGE)  # what follows needs another page
        fill(volume)
        before = open_here()
        with pytest.raises(OSError, match=FULL) as raised:
            TrialLog(volume / "native.jsonl")
        assert open_here() == before
    assert "native.jsonl" in str(raised.value)


@pytest.fixture
def job(tmp_path: Path) -> JobDocument:
    make_volumes(tmp_path)
    return make_job(tmp_path)


def test_a_save_that_is_cut_off_gives_its_room_back(tmp_path: Path) -> None:
    make_volumes(tmp_path)
    job = make_job(tmp_path)
    with small_volume(tmp_path / "checkpoints", 1):
        mine = RunLayout.of(job).incarnation(1, 1)
        with (
            pytest.raises(StorageError, match=rf"{mine.checkpoints}.*: {FULL} \(0 MiB are free\)"),
            checkpoint.under_construction(mine, 3) as directory,
            writing(directory),
        ):
            torch.save({"weights": torch.zeros(MIB)}, directory / "model.pt")
        assert list(mine.checkpoints.iterdir()) == []


def test_a_start_removes_what_dead_incarnations_left_before_it_needs_room_for_its_claim(
    tmp_path: Path, job: JobDocument
) -> None:
    with small_volume(tmp_path / "checkpoints", 1):
        run = RunLayout.of(job)
        RunLayout.of(job).incarnation(2, 1).checkpoints.mkdir(parents=True)
        cut = checkpoint.prepare(run.incarnation(1, 1), 0)
        fill(cut, "optimizer.pt")
        begin(job, 2, 1)
        assert not cut.exists()
        assert [claim.id for claim in index.read_claims(run.index)] == [(2, 1)]


def test_what_a_later_or_the_same_incarnation_builds_is_not_touched(job: JobDocument) -> None:
    run = RunLayout.of(job)
    dead, mine, later = (checkpoint.prepare(run.incarnation(*id_), 0) for id_ in ((1, 2), (2, 1), (10, 1)))
    assert leftovers.clear(run, IncarnationId(2, 1)) == [dead]
    assert mine.exists()
    assert later.exists()


def test_a_preflight_removes_what_earlier_attempts_left_once_nobody_writes_there(job: JobDocument) -> None:
    run = RunLayout.of(job)
    cut = checkpoint.prepare(run.incarnation(1, 1), 0)
    own = checkpoint.prepare(run.incarnation(2, 1), 0)
    (cut / "optimizer.pt").write_bytes(b"half")
    written = (cut / "optimizer.pt").stat().st_mtime
    clear_leftovers(job, 2, written + leftovers.IDLE_SECONDS - 1)
    assert cut.exists()  # its head may be using its grace
    clear_leftovers(job, 2, written + leftovers.IDLE_SECONDS + 1)
    assert not cut.exists()
    assert own.exists()


def test_a_full_volume_is_low_space_with_numbers_and_not_a_matter_of_rights(tmp_path: Path) -> None:
    with small_volume(tmp_path / "checkpoints", 1) as volume:
        fill(volume)
        outcome = check_volume("checkpoints", volume / "run", 64 * MIB, 128 * MIB)
    assert told(outcome) == [("refuse", "LowSpace")]
    assert "0 MiB are free, at least 64 MiB" in only_message(outcome)
    assert "Make room" in only_message(outcome)
    assert "fsGroup" not in only_message(outcome)


@pytest.mark.parametrize(
    ("number", "reason", "says"),
    [
        (errno.ENOSPC, "LowSpace", "5 MiB are free, at least 64 MiB and a free inode"),
        (errno.EDQUOT, "LowSpace", "quota"),
        (errno.EROFS, "VolumeNotWritable", "read-only"),
        (errno.EIO, "VolumeNotWritable", "broken"),
        (errno.EACCES, "VolumeNotWritable", "fsGroup"),
    ],
)
def test_what_a_volume_says_to_a_write_decides_the_advice(tmp_path: Path, number: int, reason: str, says: str) -> None:
    def refused(_: Path) -> None:
        raise OSError(number, os.strerror(number))

    outcome = check_volume("traces", tmp_path, 64 * MIB, 128 * MIB, free=lambda _: 5 * MIB, write_test=refused)
    assert told(outcome) == [("refuse", reason)]
    assert says in only_message(outcome)
    assert ("fsGroup" in only_message(outcome)) == (number == errno.EACCES)
