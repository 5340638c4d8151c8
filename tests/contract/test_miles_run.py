"""`engine: miles` from plan to exit code, with the stand-in of Miles as a process: start, seals, stop, kill, resume."""

import json
import signal
from pathlib import Path

import pytest

from harborrl_trainer.layout import RunLayout
from support.miles_run import OLD_COMMIT, Run, is_alive, torch_file


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.of(tmp_path)


def test_a_run_trains_to_its_end_and_keeps_its_newest_checkpoints(run: Run) -> None:
    done = run.run()
    assert done.exit_code == 0, done.said
    assert done.last_line == "Miles: trained until its last rollout"
    assert run.collected() == [0, 1, 2, 3, 4, 5]
    assert run.sealed() == [3, 5]
    seal = json.loads((run.mine().checkpoint(5) / "complete.json").read_text())
    assert (seal["rollout_id"], seal["optimizer"], seal["adapter"]) == (5, True, False)
    assert "../rollout/global_dataset_state_dict_5.pt" in seal["files"]
    assert not (run.mine().checkpoints / "rollout" / "global_dataset_state_dict_1.pt").exists()


def test_miles_that_ends_with_0_before_its_last_rollout_has_not_finished(run: Run) -> None:
    done = run.run(MILES_SHAPED_LEAVE="2")
    assert done.exit_code == 1, done.said
    assert "ended with exit code 0 after 3 of 6 rollouts" in done.last_line
    assert run.run(2).exit_code == 0


def test_a_finished_run_that_is_started_again_loads_nothing_and_ends_well(run: Run) -> None:
    run.run()
    again = run.run(2)
    assert (again.exit_code, run.collected(2)) == (0, [])
    assert "all 6 rollouts are trained already" in again.last_line


def test_a_driver_that_is_killed_takes_miles_with_it_and_the_next_goes_on_after_the_newest_checkpoint(run: Run) -> None:
    first = run.start(MILES_SHAPED_STEP_SECONDS="0.3")
    first.until(lambda: run.sealed() == [1], "the first checkpoint is whole")
    miles = first.miles_pid
    first.signal(signal.SIGKILL)
    first.wait()
    first_rollouts = run.collected()
    second = run.run(2)
    assert not is_alive(miles)
    assert second.exit_code == 0, second.said
    assert first_rollouts[0] == 0
    assert run.collected(2) == [2, 3, 4, 5]
    # Two prompts a rollout: the data set goes on where rollout 1 left it.
    assert "rollout 2: trained, data at 6" in second.said
    assert [claim.first_rollout for claim in run.claims()] == [0, 2]
    assert str(run.claims()[1].resumed_from).endswith("a1/i1/checkpoints/iter_0000001")
    assert run.claims()[1].optimizer is True


@pytest.mark.parametrize("where", ["in the shards", "before the data state"])
def test_a_checkpoint_that_was_torn_is_passed_over(run: Run, where: str) -> None:
    torn = run.run(MILES_SHAPED_DIE=f"3 {where}")
    assert torn.exit_code == 137
    assert "signal 9" in torn.last_line
    assert run.sealed() == [1]
    second = run.run(2)
    assert second.exit_code == 0, second.said
    assert run.collected(2) == [2, 3, 4, 5]
    assert "note: iter_0000003 of a1/i1 is not whole" in second.said
    # The torn one is gone as soon as a newer one is whole; the two newest are kept.
    assert not run.mine(1).checkpoint(3).exists()
    assert (run.sealed(1), run.sealed(2)) == ([1], [3, 5])


def test_a_checkpoint_that_became_whole_unseen_is_sealed_by_the_next_incarnation(run: Run) -> None:
    run.run(MILES_SHAPED_DIE="3 in the shards")
    (run.mine().checkpoint(1) / "complete.json").unlink()
    second = run.run(2)
    assert "from rollout 2 on" in second.said
    assert run.sealed(1) == [1]


def test_a_stop_request_saves_at_the_next_step_and_leaves_with_75(run: Run) -> None:
    driver = run.start(MILES_SHAPED_STEP_SECONDS="0.5")
    driver.until(lambda: run.collected() == [0, 1, 2], "rollout 2 is collected")
    run.mine().stop_request.write_text("request r\n")
    assert driver.exit_code == 75, driver.said
    saved = run.sealed()[-1]
    assert saved >= 1
    assert driver.last_line == f"Miles: stopped on request; the next incarnation goes on after rollout {saved}"
    assert not is_alive(driver.miles_pid)
    assert not (run.mine().checkpoints / "save-trigger").exists()
    second = run.run(2)
    assert run.collected(2)[0] == saved + 1
    assert second.exit_code == 0


def test_nothing_is_waited_for_when_all_that_was_trained_is_saved(tmp_path: Path) -> None:
    run = Run.of(tmp_path, config__saveInterval=1, config__numRollout=3)
    run.mine().checkpoints.mkdir(parents=True)
    run.mine().stop_request.write_text("request r\n")
    driver = run.run(MILES_SHAPED_STEP_SECONDS="30")
    assert driver.exit_code == 75, driver.said
    assert run.collected() == []


def test_a_wish_to_stop_that_is_taken_back_takes_the_trigger_back(run: Run) -> None:
    driver = run.start(MILES_SHAPED_STEP_SECONDS="0.7")
    trigger = run.mine().checkpoints / "save-trigger"
    driver.until(lambda: run.mine().train_file(0, 0).exists(), "rollout 0 is trained on")
    run.mine().stop_request.write_text("request r\n")
    driver.until(lambda: "Miles is asked for a checkpoint" in driver.said, "Miles is asked")
    run.mine().stop_request.unlink()
    assert driver.exit_code == 0, driver.said
    assert not trigger.exists()
    assert run.collected() == [0, 1, 2, 3, 4, 5]


def test_sigterm_saves_within_the_grace_period(run: Run) -> None:
    driver = run.start(MILES_SHAPED_STEP_SECONDS="0.5")
    driver.until(lambda: run.mine().train_file(0, 0).exists(), "rollout 0 is trained on")
    driver.signal(signal.SIGTERM)
    assert driver.exit_code == 75, driver.said
    assert run.sealed()


def test_sigterm_without_a_checkpoint_in_time_ends_miles_and_says_what_to_do(tmp_path: Path) -> None:
    run = Run.of(tmp_path, checkpoint={"keep": 2, "graceSeconds": 1}, config__saveInterval=100)
    driver = run.start(MILES_SHAPED_STEP_SECONDS="8")
    driver.until(lambda: run.mine().train_file(0, 0).exists(), "rollout 0 is trained on")
    driver.signal(signal.SIGTERM)
    code = driver.exit_code
    assert not is_alive(driver.miles_pid)
    assert (code, run.sealed()) in [(143, []), (75, [0])], driver.said
    assert "graceSeconds" in driver.last_line or code == 75


def test_under_the_older_miles_a_stop_waits_for_the_next_periodic_checkpoint(tmp_path: Path) -> None:
    run = Run.of(tmp_path, {"MILES_SHAPED_COMMIT": OLD_COMMIT}, config__milesSrcCommit=OLD_COMMIT)
    driver = run.start(MILES_SHAPED_STEP_SECONDS="0.4")
    driver.until(lambda: run.mine().train_file(2, 0).exists(), "rollout 2 is trained on")
    run.mine().stop_request.write_text("request r\n")
    assert driver.exit_code == 75, driver.said
    assert run.sealed()[-1] == 3
    # This Miles begins at 0 in bridge mode whatever it loads; its configuration file has the last word.
    second = run.run(2)
    assert run.collected(2) == [4, 5]
    assert "rollout 4: trained, data at 10" in second.said


def test_a_lora_run_goes_on_from_its_adapter_although_it_has_no_tracker_file(tmp_path: Path) -> None:
    lora = {"rank": 16, "alpha": 32, "targetModules": ["q_proj"]}
    run = Run.of(tmp_path, lora=lora)
    first = run.start(MILES_SHAPED_STEP_SECONDS="0.3")
    first.until(lambda: run.sealed() == [1], "the first adapter is whole")
    first.signal(signal.SIGKILL)
    first.wait()
    assert not run.mine().latest_checkpoint.exists()
    second = run.run(2)
    assert second.exit_code == 0, second.said
    assert run.collected(2) == [2, 3, 4, 5]
    assert "rollout 2: trained, data at 6" in second.said
    argv = run.plan(2).argv
    assert argv[argv.index("--lora-adapter-path") + 1].endswith("a1/i1/checkpoints/iter_0000001/adapter")
    assert "--load" not in argv


def test_without_optimizer_state_the_next_incarnation_does_not_look_for_any(tmp_path: Path) -> None:
    run = Run.of(tmp_path, config__noSaveOptim=True)
    run.run(MILES_SHAPED_FAIL="4 training bug")
    second = run.run(2)
    assert second.exit_code == 0
    assert "--no-load-optim" in run.plan(2).argv
    assert run.claims()[1].optimizer is False
    assert any("optimizer starts cold" in notice for notice in run.plan(2).notices)


@pytest.mark.parametrize(
    ("how", "code", "says"),
    [
        ("cuda", 1, "CUDA out of memory: lower max-tokens-per-gpu"),
        ("nccl", 69, "NCCL failed"),
        ("disk", 74, "a volume is full"),
        ("bug", 1, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_failure_of_miles_becomes_an_exit_code_and_a_sentence(run: Run, how: str, code: int, says: str) -> None:
    done = run.run(MILES_SHAPED_FAIL=f"0 training {how}")
    assert done.exit_code == code, done.said
    assert says in done.last_line


def test_what_our_rollout_layer_gave_the_run_up_for_comes_before_miles_own_words(run: Run) -> None:
    given_up = run.mine().checkpoints.parent / "launch" / "verdict.json"
    given_up.parent.mkdir(parents=True)
    given_up.write_text(json.dumps({"schemaVersion": 1, "exitCode": 69, "message": "every group was aborted"}))
    done = run.run(MILES_SHAPED_FAIL="0 training bug")
    assert (done.exit_code, done.last_line) == (69, "rollout: every group was aborted")


def test_rollouts_go_through_the_functions_that_the_arguments_name(tmp_path: Path) -> None:
    functions = (
        *("--custom-generate-function-path", "miles.rollout.generate_hub.agentic_tool_call.generate"),
        *("--custom-agent-function-path", "support.miles_agent.run"),
        *("--custom-rm-path", "support.miles_agent.reward"),
        *("--dynamic-sampling-filter-path", "miles.rollout.filter_hub.dynamic_sampling_filters.check_no_aborted"),
        "--use-session-server",
    )
    run = Run.of(tmp_path, more=functions, config__numRollout=2, config__nSamplesPerPrompt=2)
    done = run.run()
    assert done.exit_code == 0, done.said
    dump = torch_file.load(run.mine().rollout_file(1))
    assert {sample["status"] for sample in dump["samples"]} == {"completed"}
    assert [sample["reward"] for sample in dump["samples"]] == [0.5] * 4
    assert {sample["metadata"]["instance"] for sample in dump["samples"]} == {"one", "three"}
    for sample in dump["samples"]:
        assert len(sample["tokens"]) == len(sample["loss_mask"]) == len(sample["rollout_log_probs"])
        assert 0 < sum(sample["loss_mask"]) < len(sample["loss_mask"])


@pytest.mark.parametrize("flag", ["--bogus-flag", "--save-trigger"])
def test_an_argument_that_miles_does_not_know_is_a_configuration_error(tmp_path: Path, flag: str) -> None:
    done = Run.of(tmp_path, more=(flag, "3")).run()
    assert done.exit_code == 64, done.said
    assert flag in done.last_line


def test_a_setting_of_the_rollout_process_that_cannot_be_meant_is_refused_before_miles_starts(run: Run) -> None:
    process = run.run(HARBORRL_GIVE_UP_GROUPS="many")
    assert process.exit_code == 64
    assert process.last_line.startswith("trainer.env: HARBORRL_GIVE_UP_GROUPS is 'many'; it must be a whole number")
    assert "Miles runs as process" not in process.said


def test_a_start_at_0_beside_a_checkpoint_is_refused_with_65(run: Run) -> None:
    run.run(MILES_SHAPED_FAIL="4 training bug")
    index = RunLayout.of(run.job).index
    document = json.loads(index.read_text())
    document["claims"][0] |= {"attempt": 7}
    index.write_text(json.dumps(document))
    refused = run.run(2)
    assert refused.exit_code == 65
    assert "begin at rollout 0" in refused.last_line
    assert run.collected(2) == []
