"""Where an incarnation of Miles begins: the table of what can lie on the volume, and what is read of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from harborrl_trainer.errors import ConfigurationError, RestartAtZeroError, StorageError
from harborrl_trainer.index import Claim
from harborrl_trainer.layout import COMPLETE_MARK, IncarnationId
from harborrl_trainer.miles_engine import sealing
from harborrl_trainer.miles_plan import found
from harborrl_trainer.miles_plan.resume import NO_RUN, Foreign, Found, How, Resume, decide
from support import jobs
from support.miles_files import lora_checkpoint, megatron_checkpoint, torch_file

FIRST, SECOND = IncarnationId(1, 1), IncarnationId(2, 1)
CLAIMED = (Claim(attempt=1, incarnation=1, first_rollout=0),)
OVERTAKEN = (*CLAIMED, Claim(attempt=2, incarnation=1, first_rollout=4))


def saved(rollout: int, id_: IncarnationId = FIRST, **facts: object) -> Found:
    path = Path(f"/c/a{id_.attempt}/i{id_.incarnation}/checkpoints/iter_{rollout:07d}")
    return replace(Found(id_, rollout, path), **facts)  # type: ignore[arg-type]  # facts of Found


def told(resume: Resume) -> tuple[str, int, str]:
    return resume.how.value, resume.first_rollout, resume.checkpoint.name if resume.checkpoint else ""


@pytest.mark.parametrize(
    ("case", "lies", "claims", "begins"),
    [
        ("nothing", [], (), ("model", 0, "")),
        ("one whole, sealed", [saved(3, sealed=True)], CLAIMED, ("full", 4, "iter_0000003")),
        ("whole, not yet sealed", [saved(1, sealed=True), saved(3)], CLAIMED, ("full", 4, "iter_0000003")),
        ("newest torn", [saved(1), saved(3, problem=".metadata is missing")], CLAIMED, ("full", 2, "iter_0000001")),
        ("newest without data state", [saved(1), saved(3, data_problem="x")], CLAIMED, ("full", 2, "iter_0000001")),
        ("none has a data state", [saved(3, data_problem="x")], CLAIMED, ("full", 4, "iter_0000003")),
        ("only torn", [saved(3, problem="torn")], CLAIMED, ("model", 0, "")),
        ("newest sealed and damaged", [saved(1), saved(3, sealed=True, problem="x")], CLAIMED,
         ("full", 2, "iter_0000001")),
        ("of the one that was overtaken", [saved(3), saved(5), saved(5, SECOND)], OVERTAKEN,
         ("full", 6, "iter_0000005")),
        ("saved after being overtaken", [saved(3), saved(7)], OVERTAKEN, ("full", 4, "iter_0000003")),
        ("an adapter", [saved(3, adapter=True)], CLAIMED, ("adapter", 4, "iter_0000003")),
        ("an adapter without data state", [saved(3, adapter=True, data_problem="x")], CLAIMED, ("model", 0, "")),
        ("no claim was ever made", [saved(3)], (), ("full", 4, "iter_0000003")),
    ],
)  # fmt: skip
def test_the_newest_whole_checkpoint_that_the_run_owns_is_gone_on_from(
    case: str, lies: list[Found], claims: tuple[Claim, ...], begins: tuple[str, int, str]
) -> None:
    assert told(decide(lies, claims, None)) == begins, case


def test_of_two_with_the_same_id_the_later_incarnations_counts() -> None:
    resume = decide([saved(5), saved(5, SECOND)], (*CLAIMED, Claim(attempt=2, incarnation=1, first_rollout=4)), None)
    assert resume.checkpoint == saved(5, SECOND).path


def test_a_start_at_0_beside_a_whole_checkpoint_that_no_claim_gives_is_refused() -> None:
    zombie = (Claim(attempt=2, incarnation=1, first_rollout=0),)
    with pytest.raises(RestartAtZeroError, match="begin at rollout 0 although") as refused:
        decide([saved(3)], zombie, None)
    assert refused.value.exit_code == 65


def test_a_run_whose_checkpoints_are_all_damaged_does_not_begin_anew() -> None:
    with pytest.raises(StorageError, match="every checkpoint of this run is damaged"):
        decide([saved(1, sealed=True, problem="x")], CLAIMED, None)
    with pytest.raises(StorageError, match="every checkpoint of this run is damaged"):
        decide([saved(1, damaged=True, problem="x")], CLAIMED, None)


def test_what_is_passed_over_is_said_and_what_became_whole_is_marked() -> None:
    resume = decide(
        [
            saved(1),
            saved(3, optimizer=False),
            saved(5, sealed=True, problem="a file is short"),
            saved(7, problem="torn"),
        ],
        CLAIMED,
        None,
    )
    assert [one.rollout for one in resume.seals] == [1, 3]
    assert [one.rollout for one in resume.set_aside] == [5]
    assert resume.optimizer is False
    assert resume.notices == (
        "iter_0000005 of a1/i1 is not whole: a file is short",
        "iter_0000007 of a1/i1 is not whole: torn",
        "iter_0000003 holds no optimizer state: the optimizer starts cold (config.noSaveOptim)",
    )


def test_a_foreign_checkpoint_is_gone_on_from_only_while_the_run_has_none() -> None:
    foreign = Foreign(found=saved(9, NO_RUN, data_problem="rollout/x.pt is missing or torn"))
    first = decide([], (), foreign)
    assert told(first) == ("full", 10, "iter_0000009")
    assert first.data_state is False
    assert "the data set starts from its beginning" in first.notices[0]
    assert told(decide([saved(11)], CLAIMED, foreign)) == ("full", 12, "iter_0000011")


def test_converted_weights_are_begun_from_at_rollout_0() -> None:
    resume = decide([], (), Foreign(release=Path("/c/torch_dist")))
    assert told(resume) == (How.RELEASE, 0, "torch_dist")
    assert resume.optimizer is False


# What is read of the volume.


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (Path.exists, ""),
        (lambda place: (place.parent / sealing.TRACKER).unlink(), "the tracker file says nothing"),
        (lambda place: (place.parent / sealing.TRACKER).write_text("1\n"), "the tracker file says 1"),
        (lambda place: (place.parent / sealing.TRACKER).write_text("release"), "the tracker file says release"),
        (lambda place: (place / ".metadata").unlink(), ".metadata is missing"),
        (lambda place: (place / "common.pt").unlink(), "common.pt is missing"),
        (lambda place: (place / "__0_0.distcp").write_bytes(b""), "__0_0.distcp is empty"),
    ],
)
def test_weights_are_whole_when_index_shards_and_tracker_are(tmp_path: Path, harm: object, says: str) -> None:
    place = megatron_checkpoint(tmp_path, 3)
    harm(place)  # type: ignore[operator]  # one of the lambdas above
    assert sealing.weights_problem(tmp_path, 3) == says


def test_an_older_checkpoint_stays_whole_when_the_tracker_moves_on(tmp_path: Path) -> None:
    megatron_checkpoint(tmp_path, 3)
    megatron_checkpoint(tmp_path, 5)
    assert sealing.problem(tmp_path, 3) == ""


def test_the_place_in_the_data_set_must_be_a_whole_archive_unless_miles_keeps_none(tmp_path: Path) -> None:
    megatron_checkpoint(tmp_path, 3)
    state = sealing.data_state(tmp_path, 3)
    state.write_bytes(state.read_bytes()[:-40])
    assert sealing.problem(tmp_path, 3) == f"rollout/{state.name} is missing or torn"
    assert sealing.problem(tmp_path, 3, data_state=False) == ""


@pytest.mark.parametrize(
    ("missing", "says"),
    [
        ("", ""),
        ("adapter_megatron_rank*.pt", "there is no adapter/adapter_megatron_*.pt"),
        ("training_state_rank1.pt", "adapter/training_state_rank1.pt is missing"),
        ("training_state_rank*.pt", "there is no adapter/training_state_rank*.pt"),
    ],
)
def test_an_adapter_is_whole_when_each_rank_left_its_shard_and_its_training_state(
    tmp_path: Path, missing: str, says: str
) -> None:
    place = lora_checkpoint(tmp_path, 3)
    for path in (place / "adapter").glob(missing or "none"):
        path.unlink()
    assert sealing.weights_problem(tmp_path, 3).startswith(says)
    assert bool(sealing.weights_problem(tmp_path, 3)) == bool(says)


@pytest.mark.parametrize(
    ("older", "ranks", "says"),
    [
        (False, 2, ""),
        (False, 8, "adapter/ holds 2 ranks, and 8 GPUs train"),
        (True, 8, "adapter/ holds 2 ranks, and 8 GPUs train"),
        (False, 1, "adapter/ holds 2 ranks, and 1 GPUs train"),
        (False, 0, ""),
    ],
)
def test_an_adapter_that_not_each_training_gpu_has_saved_is_not_whole(
    tmp_path: Path, older: bool, ranks: int, says: str
) -> None:
    adapter = lora_checkpoint(tmp_path, 3) / "adapter"
    for rank in (0, 1) if older else ():
        (adapter / f"adapter_megatron_rank{rank}.pt").rename(adapter / f"adapter_megatron_tp{rank}_pp0.pt")
    assert sealing.problem(tmp_path, 3, ranks=ranks) == says


def test_the_shards_of_the_older_miles_are_named_by_tensor_and_pipeline_rank(tmp_path: Path) -> None:
    place = lora_checkpoint(tmp_path, 3)
    for rank in (0, 1):
        (place / "adapter" / f"adapter_megatron_rank{rank}.pt").rename(
            place / "adapter" / f"adapter_megatron_tp{rank}_pp0.pt"
        )
    assert sealing.weights_problem(tmp_path, 3) == ""


def test_a_seal_holds_every_size_and_a_change_is_damage(tmp_path: Path) -> None:
    place = megatron_checkpoint(tmp_path, 3)
    sealing.seal(tmp_path, 3)
    assert sealing.damage(place) == ""
    assert (place / COMPLETE_MARK).exists()
    sealing.data_state(tmp_path, 3).unlink()
    assert "cannot be verified" in sealing.damage(place)
    torch_file(sealing.data_state(tmp_path, 3))
    assert sealing.damage(place) == ""
    (place / "__1_0.distcp").write_bytes(b"x")
    assert sealing.damage(place) == "__1_0.distcp has not the size it was sealed with"


def test_whether_the_optimizer_was_saved_is_told_by_the_checkpoints_own_index(tmp_path: Path) -> None:
    assert sealing.holds_optimizer(megatron_checkpoint(tmp_path, 3))
    assert not sealing.holds_optimizer(megatron_checkpoint(tmp_path, 4, optimizer=False))
    assert sealing.holds_optimizer(lora_checkpoint(tmp_path, 5))


@pytest.mark.parametrize("named", ["", "iter_0000005"])
def test_resume_from_takes_a_directory_that_miles_saved_to_and_a_checkpoint_in_it(tmp_path: Path, named: str) -> None:
    other = tmp_path / "checkpoints" / "other"
    megatron_checkpoint(other, 3)
    megatron_checkpoint(other, 5)
    job = jobs.job(tmp_path, resumeFrom={"path": f"other/{named}"})
    source = found.source_of(job)
    assert source is not None
    assert source.found is not None
    assert source.found.path == other / "iter_0000005"


def test_resume_from_prefers_an_older_whole_adapter_to_a_newer_torn_one(tmp_path: Path) -> None:
    other = tmp_path / "checkpoints" / "other"
    lora_checkpoint(other, 3)
    torn = lora_checkpoint(other, 5) / "adapter"
    sealing.data_state(other, 5).unlink()
    for path in torn.glob("*_rank1.pt"):
        path.unlink()
    for gpus in (0, 2):
        source = found.source_of(jobs.job(tmp_path, resumeFrom={"path": "other"}, nodes=1, gpusPerNode=gpus))
        assert source is not None
        assert source.found is not None
        assert source.found.path == other / "iter_0000003"


def test_resume_from_a_lone_torn_adapter_is_refused_with_both_numbers(tmp_path: Path) -> None:
    lora_checkpoint(tmp_path / "checkpoints" / "other", 3)
    for named in ("other", "other/iter_0000003"):
        job = jobs.job(tmp_path, resumeFrom={"path": named}, nodes=1, gpusPerNode=8)
        with pytest.raises(ConfigurationError, match=r"iter_0000003: adapter/ holds 2 ranks, and 8 GPUs train"):
            found.source_of(job)


def test_resume_from_takes_converted_weights_and_refuses_an_empty_directory(tmp_path: Path) -> None:
    other = tmp_path / "checkpoints" / "other"
    other.mkdir(parents=True)
    job = jobs.job(tmp_path, resumeFrom={"path": "other"})
    with pytest.raises(ConfigurationError, match="is no whole checkpoint of Miles"):
        found.source_of(job)
    (other / sealing.TRACKER).write_text("release")
    assert found.source_of(job) == Foreign(release=other)


def test_the_mark_is_the_one_that_all_of_the_trainer_knows() -> None:
    assert sealing.COMPLETE_MARK == COMPLETE_MARK
