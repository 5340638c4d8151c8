"""Each thing that can be wrong before the start is refused with a reason and a message that says what to do."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harborrl_trainer.preflight.data import check_data
from harborrl_trainer.preflight.findings import Outcome
from harborrl_trainer.preflight.model import check_model, parameter_count
from harborrl_trainer.preflight.storage import MIB, check_resume, check_volume, checkpoint_bytes
from support import jobs
from support.findings import only_message, told
from support.permissions import unprivileged_folder

# model


def test_a_whole_model_is_accepted_and_measured(tmp_path: Path) -> None:
    outcome = check_model(jobs.make_model(tmp_path / "tiny"))
    assert outcome == Outcome([], {"model": {"parameters": 6}})


def test_a_missing_model_is_named_by_its_path(tmp_path: Path) -> None:
    outcome = check_model(tmp_path / "none")
    assert told(outcome) == [("refuse", "ModelNotFound")]
    assert str(tmp_path / "none") in only_message(outcome)


def lfs_pointer(model: Path) -> None:
    (model / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")


def torn_weights(model: Path) -> None:
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(weights[:-1])


def missing_shard(model: Path) -> None:
    (model / "model.safetensors").rename(model / "model-1.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda model: (model / "config.json").unlink(), "config.json cannot be read"),
        (lambda model: (model / "config.json").write_text("{}"), "neither model_type nor architectures"),
        (lambda model: (model / "config.json").write_text("{"), "config.json is not JSON"),
        (lambda model: (model / "tokenizer.json").unlink(), "there is no tokenizer"),
        (lambda model: (model / "model.safetensors").unlink(), "there are no weights"),
        (lfs_pointer, "pointer of Git LFS"),
        (torn_weights, "bytes where its header says"),
        (missing_shard, "1 of 2 shards are missing, model-2.safetensors first"),
    ],
)
def test_a_damaged_model_is_refused_with_the_damage(tmp_path: Path, damage: Callable[[Path], Any], said: str) -> None:
    model = jobs.make_model(tmp_path / "tiny")
    damage(model)
    outcome = check_model(model)
    assert told(outcome) == [("refuse", "ModelIncomplete")]
    assert said in only_message(outcome)


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    with unprivileged_folder() as folder:
        yield folder


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_file_that_may_not_be_read_is_named_with_the_user_and_what_to_do(unprivileged: Path, name: str) -> None:
    model = jobs.make_model(unprivileged / "tiny")
    (model / name).chmod(0)
    outcome = check_model(model)
    assert told(outcome) == [("refuse", "ModelNotReadable")]
    assert f"{model / name}: permission denied for user {os.geteuid()}," in only_message(outcome)
    assert f"chmod -R a+rX {model}" in only_message(outcome)


@pytest.mark.parametrize("mode", [0o000, 0o400], ids=["may not be listed", "may not be entered"])
def test_a_model_directory_that_is_closed_is_not_taken_for_an_empty_one(unprivileged: Path, mode: int) -> None:
    model = jobs.make_model(unprivileged / "tiny")
    model.chmod(mode)
    try:
        assert told(check_model(model)) == [("refuse", "ModelNotReadable")]
        assert parameter_count(model) == 0
    finally:
        model.chmod(0o700)


def test_a_model_in_shards_is_accepted(tmp_path: Path) -> None:
    model = jobs.make_model(tmp_path / "tiny")
    missing_shard(model)
    jobs.write_safetensors(model / "model-2.safetensors")
    assert check_model(model) == Outcome([], {"model": {"parameters": 12}})


# data and tasks


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    jobs.make_volumes(tmp_path)
    return tmp_path


def test_whole_tasks_are_accepted_and_counted(volumes: Path) -> None:
    jobs.make_task(volumes / "tasks", "greet")
    jobs.make_task(volumes / "tasks", "sort")
    outcome = check_data(jobs.job(volumes))
    assert (outcome.findings, outcome.facts["prompts"]) == ([], 2)


@pytest.mark.parametrize("remove_root", [True, False])
def test_an_absent_or_empty_task_folder_is_no_tasks(volumes: Path, remove_root: bool) -> None:
    if remove_root:
        (volumes / "tasks").rmdir()
    assert told(check_data(jobs.job(volumes))) == [("refuse", "NoTasks")]


def test_a_glob_that_selects_nothing_is_no_tasks_and_is_quoted(volumes: Path) -> None:
    jobs.make_task(volumes / "tasks", "greet")
    outcome = check_data(jobs.job(volumes, data={"tasks": {"root": str(volumes / "tasks"), "glob": "tb2-*"}}))
    assert told(outcome) == [("refuse", "NoTasks")]
    assert "'tb2-*'" in only_message(outcome)


def test_an_empty_instruction_is_an_empty_prompt(volumes: Path) -> None:
    jobs.make_task(volumes / "tasks", "greet", instruction="\n")
    outcome = check_data(jobs.job(volumes))
    assert told(outcome) == [("refuse", "PromptEmpty")]
    assert "greet" in only_message(outcome)


@pytest.mark.parametrize(
    ("damage", "reason", "said"),
    [
        (lambda task: (task / "task.toml").unlink(), "TaskInvalid", "greet (no task.toml)"),
        (lambda task: (task / "task.toml").write_text("= 1"), "TaskInvalid", "cannot be read as TOML"),
        (lambda task: (task / "tests" / "test.sh").unlink(), "TaskWithoutVerifier", "Add tests/test.sh"),
    ],
)
def test_a_damaged_task_is_refused(volumes: Path, damage: Callable[[Path], Any], reason: str, said: str) -> None:
    damage(jobs.make_task(volumes / "tasks", "greet"))
    outcome = check_data(jobs.job(volumes))
    assert told(outcome) == [("refuse", reason)]
    assert said in only_message(outcome)


def data_set(volumes: Path, *rows: dict[str, Any]) -> dict[str, Any]:
    path = volumes / "tasks" / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"jsonl": str(path)}


def row(instance: str, prompt: str = "do it", **metadata: Any) -> dict[str, Any]:
    return {"prompt": prompt, "metadata": {"instance_id": instance, **metadata}}


def test_prompts_without_a_task_directory_are_counted_and_the_first_few_named(volumes: Path) -> None:
    jobs.make_task(volumes / "tasks", "greet")
    rows = [row("greet"), *(row(f"gone-{number}") for number in range(8))]
    outcome = check_data(jobs.job(volumes, data=data_set(volumes, *rows)))
    assert told(outcome) == [("refuse", "TaskNotFound")]
    assert only_message(outcome).startswith("8 of 9 prompts name no task directory under")
    assert "gone-0, gone-1, gone-2, gone-3, gone-4 and 3 more" in only_message(outcome)


def test_an_id_that_leads_out_of_the_task_root_is_refused_by_its_line(volumes: Path) -> None:
    jobs.make_task(volumes / "tasks", "greet")
    outcome = check_data(jobs.job(volumes, data=data_set(volumes, row("greet"), row("../greet"))))
    assert told(outcome) == [("refuse", "DataInvalid")]
    assert "train.jsonl:2 has an id that no task directory may have ('../greet'" in only_message(outcome)


def test_rows_that_cannot_be_used_are_refused_by_line(volumes: Path) -> None:
    jobs.make_task(volumes / "tasks", "greet")
    outcome = check_data(jobs.job(volumes, data=data_set(volumes, row("greet"), row("greet", ""), {"prompt": "x"})))
    assert told(outcome) == [("refuse", "PromptEmpty"), ("refuse", "DataInvalid")]
    assert "train.jsonl:2" in outcome.findings[0].message
    assert "train.jsonl:3" in outcome.findings[1].message


def test_reserved_keys_only_warn(volumes: Path) -> None:
    jobs.make_task(volumes / "tasks", "greet")
    outcome = check_data(jobs.job(volumes, data=data_set(volumes, row("greet", reward=1))))
    assert told(outcome) == [("warn", "ReservedKeysStripped")]
    assert "reward (1)" in only_message(outcome)


def test_a_data_set_that_is_not_there_is_refused(volumes: Path) -> None:
    jobs.make_task(volumes / "tasks", "greet")
    outcome = check_data(jobs.job(volumes, data={"jsonl": str(volumes / "tasks" / "none.jsonl")}))
    assert told(outcome) == [("refuse", "DataNotFound")]


def test_the_evaluation_set_is_checked_like_the_training_set(volumes: Path) -> None:
    jobs.make_task(volumes / "tasks", "greet")
    held_out = data_set(volumes, row("greet"), row("gone"))
    outcome = check_data(jobs.job(volumes, eval=held_out))
    assert told(outcome) == [("refuse", "TaskNotFound")]
    assert (outcome.facts["prompts"], outcome.facts["evalPrompts"]) == (1, 2)


# volumes and checkpoints


def test_a_writable_roomy_volume_is_accepted_and_left_clean(tmp_path: Path) -> None:
    outcome = check_volume("traces", tmp_path / "run", 10 * MIB, 20 * MIB, free=lambda _: 20 * MIB)
    assert outcome == Outcome([], {"freeBytes": {"traces": 20 * MIB}})
    assert list((tmp_path / "run").iterdir()) == []


def test_a_volume_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the run's folder belongs")
    outcome = check_volume("trials", tmp_path / "run", 1, 1)
    assert told(outcome) == [("refuse", "VolumeNotWritable")]
    assert "storage.trials" in only_message(outcome)


@pytest.mark.parametrize(("mebibytes", "verdict"), [(9, "refuse"), (10, "warn"), (19, "warn")])
def test_little_room_warns_and_too_little_refuses(tmp_path: Path, mebibytes: int, verdict: str) -> None:
    outcome = check_volume("traces", tmp_path, 10 * MIB, 20 * MIB, free=lambda _: mebibytes * MIB)
    assert told(outcome) == [(verdict, "LowSpace")]
    assert f"{mebibytes} MiB are free" in only_message(outcome)


def test_a_checkpoint_with_optimizer_is_three_times_one_without(tmp_path: Path) -> None:
    assert checkpoint_bytes(jobs.job(tmp_path, config__noSaveOptim=True), 100) == 400
    assert checkpoint_bytes(jobs.job(tmp_path, config__noSaveOptim=False), 100) == 1200


def test_an_adapters_checkpoint_is_not_taken_for_the_whole_models(tmp_path: Path) -> None:
    assert checkpoint_bytes(jobs.job(tmp_path, lora={"rank": 16, "alpha": 32, "targetModules": ["q_proj"]}), 10**9) == 0


def checkpoint(volumes: Path, folder: str, *, complete: bool = True) -> None:
    run = volumes / "checkpoints" / "research" / "quickstart-5f0c2a9e"
    jobs.make_checkpoint(run / folder, complete=complete)


def test_a_first_start_has_nothing_to_resume(volumes: Path) -> None:
    assert check_resume(jobs.job(volumes)) == Outcome([], {"resume": None})


def test_the_checkpoint_to_go_on_from_is_a_fact(volumes: Path) -> None:
    checkpoint(volumes, "a1/i1/checkpoints/iter_0000003")
    assert check_resume(jobs.job(volumes)).facts == {
        "resume": {"rolloutId": 3, "path": "research/quickstart-5f0c2a9e/a1/i1/checkpoints/iter_0000003"}
    }


def test_a_torn_newer_checkpoint_is_passed_over_aloud(volumes: Path) -> None:
    checkpoint(volumes, "a1/i1/checkpoints/iter_0000003")
    checkpoint(volumes, "a1/i1/checkpoints/iter_0000005", complete=False)
    outcome = check_resume(jobs.job(volumes))
    assert told(outcome) == [("warn", "CheckpointIncomplete")]
    assert "iter_0000005" in only_message(outcome)
    assert "goes on from rollout 4" in only_message(outcome)


def test_losing_everything_to_a_torn_checkpoint_is_said(volumes: Path) -> None:
    checkpoint(volumes, "a1/i1/checkpoints/iter_0000005", complete=False)
    assert "rollout 0, from the model" in only_message(check_resume(jobs.job(volumes)))


def test_a_resume_source_without_checkpoint_is_refused(volumes: Path) -> None:
    outcome = check_resume(jobs.job(volumes, resumeFrom={"path": "research/other-00000000"}))
    assert told(outcome) == [("refuse", "ResumeSourceInvalid")]


def test_checkpoints_that_cannot_be_listed_are_no_start_from_the_model(unprivileged: Path) -> None:
    jobs.make_volumes(unprivileged)
    job = jobs.job(unprivileged)
    run = unprivileged / "checkpoints" / job.run_path
    run.mkdir(parents=True)
    run.chmod(0)
    try:
        assert told(check_resume(job)) == [("refuse", "VolumeNotReadable")]
    finally:
        run.chmod(0o700)


def test_a_start_at_0_beside_a_whole_checkpoint_is_refused_before_anything_is_held(volumes: Path) -> None:
    checkpoint(volumes, "a1/i1/checkpoints/iter_0000005")
    claims = [{"attempt": attempt, "incarnation": 1, "firstRollout": 0, "resumedFrom": None} for attempt in (1, 2)]
    run = volumes / "checkpoints" / "research" / "quickstart-5f0c2a9e"
    (run / "index.json").write_text(json.dumps({"schemaVersion": 1, "claims": claims}))
    assert told(check_resume(jobs.job(volumes))) == [("refuse", "RestartAtZero")]


def test_a_volume_without_the_known_checkpoint_is_refused_before_anything_is_held(volumes: Path) -> None:
    known = {"rolloutId": 39, "path": "research/quickstart-5f0c2a9e/a1/i1/checkpoints/iter_0000039"}
    outcome = check_resume(jobs.job(volumes, knownCheckpoint=known))
    assert told(outcome) == [("refuse", "RestartAtZero")]
    assert "storage.checkpoints" in only_message(outcome)
