"""The sidecar submits its driver exactly once, tells its fate, and ends it in the order that loses least."""

import json
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harborrl_trainer import index
from harborrl_trainer.index import Claim
from harborrl_trainer.layout import RunLayout
from harborrl_trainer.space import Space
from harborrl_trainer.supervisor import progress
from harborrl_trainer.supervisor.agents import ServerLoad
from harborrl_trainer.supervisor.disk import RunReader
from support import jobs
from support.supervision import EPOCH, Pod

GIB = 1024**3


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    jobs.make_volumes(tmp_path)
    return Pod(tmp_path)


# submission


async def test_the_driver_is_submitted_once_under_its_own_id_with_nothing_secret(pod: Pod) -> None:
    await pod.supervise(60)
    assert pod.ray.submissions == ["quickstart-a1-i1"]
    assert pod.ray.jobs["quickstart-a1-i1"].body == {
        "entrypoint": "python -m harborrl_trainer run --attempt 1 --incarnation 1",
        "submission_id": "quickstart-a1-i1",
        "entrypoint_num_cpus": 0,
    }


async def test_the_incarnations_folder_is_there_before_the_driver_is(pod: Pod) -> None:
    pod.ray.down = True
    await pod.supervise(5)
    assert not pod.run.checkpoints.exists()
    pod.ray.down = False
    pod.ray.refuse = "no"
    await pod.supervise(5)
    assert pod.mine().checkpoints.is_dir()
    assert pod.ray.submissions == []


async def test_a_supervisor_that_died_attaches_to_the_driver_of_its_pod(pod: Pod) -> None:
    await pod.supervise(20)
    pod.run_driver()
    pod.clock.at(40, lambda: pod.end_driver(0))
    await pod.supervise(60)
    assert pod.ray.submissions == ["quickstart-a1-i1"]
    assert pod.cluster.states[-1] == "SUCCEEDED"


async def test_a_lost_answer_to_the_submission_does_not_make_a_second_driver(pod: Pod) -> None:
    pod.ray.lose_answers = 1
    await pod.supervise(30)
    assert pod.ray.submissions == ["quickstart-a1-i1"]
    assert pod.cluster.states[-1] == "PENDING"


async def test_death_between_claim_and_submission_keeps_the_incarnation(pod: Pod) -> None:
    pod.mine().checkpoints.mkdir(parents=True)
    (pod.marks.folder / "incarnation.json").write_text(json.dumps({"incarnation": 1, "submitted": False}))
    await pod.supervise(10)
    assert pod.ray.submissions == ["quickstart-a1-i1"]


async def test_a_new_head_pod_is_a_new_incarnation_of_its_attempt(pod: Pod, tmp_path: Path) -> None:
    await pod.supervise(10)
    second = Pod(tmp_path, marks="second-pod", clock=pod.clock)
    second.cluster = pod.cluster
    await second.supervise(10)
    assert second.ray.submissions == ["quickstart-a1-i2"]
    third = Pod(tmp_path, marks="third-pod", attempt=2, clock=pod.clock)
    await third.supervise(10)
    assert third.ray.submissions == ["quickstart-a2-i1"]


async def test_a_driver_that_ray_knows_is_followed_even_when_the_pod_has_forgotten_it(pod: Pod) -> None:
    await pod.supervise(10)
    (pod.marks.folder / "incarnation.json").unlink()
    await pod.supervise(10)
    assert pod.ray.submissions == ["quickstart-a1-i1"]


async def test_a_driver_that_ray_has_forgotten_is_lost_and_never_submitted_again(pod: Pod) -> None:
    await pod.supervise(10)
    pod.ray.jobs.clear()
    await pod.supervise(10)
    assert pod.ray.submissions == ["quickstart-a1-i1"]
    assert pod.cluster.last["driver"]["failureClass"] == "infrastructure"
    assert "Ray no longer knows the driver" in pod.cluster.last["driver"]["message"]


async def test_a_driver_that_vanishes_while_followed_is_lost_too(pod: Pod) -> None:
    pod.clock.at(20, pod.ray.jobs.clear)
    await pod.supervise(60)
    assert pod.cluster.last["driver"]["state"] == "FAILED"
    assert pod.cluster.last["driver"]["failureClass"] == "infrastructure"


async def test_a_dashboard_that_is_silent_for_an_hour_is_no_verdict(pod: Pod) -> None:
    def set_down(down: bool) -> None:
        pod.ray.down = down

    pod.clock.at(5, pod.run_driver)
    pod.clock.at(20, lambda: set_down(True))
    pod.clock.at(3620, lambda: set_down(False))
    pod.clock.at(3640, lambda: pod.end_driver(0))
    await pod.supervise(3700)
    assert pod.cluster.states == ["PENDING", "RUNNING", "SUCCEEDED"]
    assert any("connection refused" in line for line in pod.said)


async def test_a_submission_that_ray_refuses_is_a_failure_with_rays_words(pod: Pod) -> None:
    pod.ray.refuse = "TypeError: entrypoint must be a string, got int."
    await pod.supervise(10)
    assert pod.cluster.last["driver"]["state"] == "FAILED"
    assert "entrypoint must be a string" in pod.cluster.last["driver"]["message"]


# progress


async def test_progress_has_the_shape_of_the_contract(pod: Pod) -> None:
    await pod.supervise(20)
    contract = json.loads((jobs.CONTRACTS / "progress.json").read_text())

    def shape(value: Any) -> Any:
        return {key: shape(part) for key, part in value.items()} if isinstance(value, dict) else None

    theirs, ours = shape(contract), shape(pod.cluster.last)
    not_yet = {key: theirs[key] for key in ("checkpoint", "resume", "request")}
    assert {ours[key] for key in not_yet} == {None}
    assert {**ours, **not_yet} == theirs


async def test_dumps_and_trials_reach_the_config_map(pod: Pod) -> None:
    record = json.loads((jobs.CONTRACTS / "trial_record.json").read_text()) | {"rollout_id": 0}

    def first_rollout() -> None:
        mine = pod.mine()
        rows = [record | {"reward": reward} for reward in (1.0, 0.5)]
        rows += [record | {"group_id": 4, "kept": False, "status": "aborted", "reward": None, "drop_reason": "aborted"}]
        (mine.trials / "driver.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"torn')
        pod.dump(mine.rollout_file(0))
        pod.dump(mine.train_file(0, 0))
        jobs.make_checkpoint(mine.checkpoint(0))

    pod.clock.at(5, first_rollout)
    pod.clock.at(65, lambda: pod.dump(pod.mine().rollout_file(1)))
    await pod.supervise(100)
    assert pod.cluster.last["rollout"] == {
        "collected": 2,
        "trained": 1,
        "total": 3,
        "lastDumpTime": "2026-01-01T00:01:05Z",
        "medianSeconds": 60.0,
        "rewardMean": None,
        "droppedGroups": 1,
        "lostRollouts": 0,
        "trials": 3,
        "aborted": 1,
    }
    assert 0.75 in [document["rollout"]["rewardMean"] for _, document in pod.cluster.writes]
    assert pod.cluster.last["checkpoint"] == {
        "rolloutId": 0,
        "path": "research/quickstart-5f0c2a9e/a1/i1/checkpoints/iter_0000000",
        "savedAt": pod.cluster.last["checkpoint"]["savedAt"],
    }


async def test_room_on_the_volumes_is_reported_against_what_will_be_needed(pod: Pod) -> None:
    await pod.supervise(20)
    volumes = pod.cluster.last["volumes"]
    assert volumes.keys() == {"checkpoints", "traces", "trials"}
    assert volumes["traces"]["neededBytes"] == 1_000_000_000
    assert all(len(str(room["freeBytes"]).rstrip("0")) <= 2 for room in volumes.values())


def test_room_alone_is_worth_a_write_only_when_it_becomes_short_or_is_enough_again() -> None:
    def report(free: int, *, low: bool) -> dict[str, Any]:
        room = {"freeBytes": free, "neededBytes": 10, "low": low}
        return {"driver": {"state": "RUNNING"}, "agentServer": None, "volumes": {"traces": room}}

    def worth(before: dict[str, Any], after: dict[str, Any]) -> bool:
        return progress.worth_writing(before, after, 3600, final=False)

    assert not worth(report(99, low=False), report(50, low=False))
    assert worth(report(50, low=False), report(9, low=True))
    assert worth(report(9, low=True), report(50, low=False))


def test_room_for_two_checkpoints_is_needed_and_less_is_low(tmp_path: Path) -> None:
    jobs.make_volumes(tmp_path)
    run = RunLayout.of(jobs.job(tmp_path))
    mine = run.incarnation(1, 1)
    mark = jobs.make_checkpoint(mine.checkpoint(0)) / "complete.json"
    mark.write_text(json.dumps({"files": {"model": 3 * GIB, "optimizer": 6 * GIB}}))
    mine.rollout_data.mkdir(parents=True)
    space = RunReader(run, mine.id, lambda _: 18 * GIB - 1).look(EPOCH, 10).space
    assert space["checkpoints"] == Space(18 * GIB - 1, 18 * GIB)
    assert (space["checkpoints"].is_low, space["traces"].is_low) == (True, False)


async def test_a_start_from_a_checkpoint_reaches_the_report(pod: Pod) -> None:
    claim = Claim(attempt=1, incarnation=1, first_rollout=4, resumed_from="x/iter_3", optimizer=False, set_aside=("y",))
    pod.clock.at(5, lambda: index.add_claim(pod.run.index, claim))
    await pod.supervise(30)
    assert pod.cluster.last["resumedFrom"] == "x/iter_3"
    assert pod.cluster.last["resume"] == {"firstRollout": 4, "optimizer": False, "setAside": ["y"]}


async def test_the_oldest_trial_is_told_by_its_begin_which_stays_while_it_is_the_same(pod: Pod) -> None:
    pod.agents.load_now = ServerLoad(8, 3, oldest_trial_s=0.0)
    for second in range(1, 600):
        late = 0.9 * (second % 2)  # what an answer takes
        load = ServerLoad(8, 3, oldest_trial_s=second - late)
        pod.clock.at(second, partial(setattr, pod.agents, "load_now", load))
    pod.clock.at(300, pod.run_driver)
    await pod.supervise(600)
    told = [document["agentServer"]["oldestTrialSince"] for _, document in pod.cluster.writes]
    assert len(told) == 2  # the driver's two states, and no write for the trial's sake
    assert len(set(told)) == 1


async def test_a_quiet_hour_costs_the_dashboard_a_log_each_minute_and_a_question_each_two_seconds(pod: Pod) -> None:
    """ray#39535, #37894: a dashboard that many polls and logs made slow."""
    pod.clock.at(5, pod.run_driver)
    await pod.supervise(3600)
    assert 0 < pod.ray.asked["logs"] <= 3600 / 60 + 1
    assert 0 < pod.ray.asked["any other"] <= 3600 / 2 + 10


async def test_nothing_is_written_while_nothing_changes(pod: Pod) -> None:
    pod.clock.at(5, pod.run_driver)
    await pod.supervise(3600)
    assert pod.cluster.states == ["PENDING", "RUNNING"]


async def test_a_busy_run_writes_every_10_seconds_at_most_and_its_end_at_once(pod: Pod) -> None:
    pod.clock.at(3, pod.run_driver)
    for second in range(4, 100):
        pod.clock.at(second, partial(pod.dump, pod.mine().rollout_file(second)))
    pod.clock.at(101, lambda: pod.end_driver(0))
    await pod.supervise(110)
    times = [time for time, _ in pod.cluster.writes]
    assert len(times) > 5
    assert all(later - earlier >= 10 for earlier, later in pairwise(times[:-1]))
    assert times[-1] <= 104
    assert pod.cluster.last["rollout"]["collected"] == 100


async def test_the_load_of_the_agent_server_alone_is_written_once_a_minute(pod: Pod) -> None:
    for second in range(30, 600, 30):
        pod.clock.at(second, partial(setattr, pod.agents, "load_now", ServerLoad(8, second)))
    await pod.supervise(600)
    times = [time for time, _ in pod.cluster.writes]
    assert 5 <= len(times) <= 11
    assert all(later - earlier >= 60 for earlier, later in pairwise(times))


async def test_the_sequence_goes_on_over_a_new_supervisor_and_an_unchanged_document_is_not_rewritten(pod: Pod) -> None:
    pod.clock.at(3, pod.run_driver)
    await pod.supervise(30)
    written = len(pod.cluster.writes)
    pod.clock.at(35, lambda: pod.end_driver(0))
    await pod.supervise(30)
    sequences = [document["sequence"] for _, document in pod.cluster.writes]
    assert sequences == list(range(1, len(sequences) + 1))
    assert pod.cluster.states[written:] == ["SUCCEEDED"]


async def test_an_api_server_that_is_away_is_outlived_with_back_off(pod: Pod) -> None:
    pod.cluster.down = True

    def back() -> None:
        pod.cluster.down = False

    pod.clock.at(10, lambda: pod.end_driver(64, "trainer.lr: too high; lower it"))
    pod.clock.at(600, back)
    await pod.supervise(700)
    assert pod.cluster.states == ["FAILED"]
    assert 600 <= pod.cluster.writes[0][0] <= 605


async def test_a_verdict_that_could_not_be_written_is_tried_again_on_leaving(pod: Pod) -> None:
    def set_down(down: bool) -> None:
        pod.cluster.down = down

    pod.clock.at(5, lambda: set_down(True))
    pod.clock.at(10, lambda: pod.end_driver(0))
    pod.clock.at(30, lambda: set_down(False))
    await pod.supervise(20)
    assert pod.cluster.states[-1] == "SUCCEEDED"


async def test_an_overtaken_supervisor_keeps_silent(pod: Pod, tmp_path: Path) -> None:
    await pod.supervise(20)
    newer = Pod(tmp_path, marks="second-pod", clock=pod.clock)
    newer.cluster = pod.cluster
    await newer.supervise(20)
    before = list(pod.cluster.writes)
    pod.end_driver(0)
    await pod.supervise(60)
    assert pod.cluster.writes == before
    assert pod.cluster.last["incarnation"] == 2


async def test_a_write_between_ours_is_read_and_not_undone(pod: Pod) -> None:
    def foreign_touch() -> None:
        pod.cluster.put(pod.cluster.document or {})

    pod.clock.at(5, pod.run_driver)
    pod.clock.at(20, foreign_touch)
    pod.clock.at(40, lambda: pod.end_driver(0))
    await pod.supervise(60)
    assert pod.cluster.states == ["PENDING", "RUNNING", "SUCCEEDED"]


async def test_the_last_log_stays_whole_until_the_next_one_is(pod: Pod) -> None:
    await pod.supervise(2)
    kept = pod.mine().driver_log.with_name("seen-before")
    pod.mine().driver_log.write_text("before\n")
    kept.hardlink_to(pod.mine().driver_log)
    pod.end_driver(1, "after\n")
    await pod.supervise(20)
    assert (kept.read_text(), pod.mine().driver_log.read_text()) == ("before\n", "after\n")


async def test_the_drivers_log_is_kept_beside_the_traces(pod: Pod) -> None:
    pod.clock.at(10, lambda: pod.end_driver(74, "step 1\n/mnt/traces: full; make room\n"))
    await pod.supervise(20)
    assert pod.mine().driver_log.read_text() == "step 1\n/mnt/traces: full; make room\n"
    assert pod.cluster.last["driver"] == {
        "submissionId": "quickstart-a1-i1",
        "state": "FAILED",
        "message": "/mnt/traces: full; make room",
        "failureClass": "storage",
        "cause": None,
        "startedAt": "2026-01-01T00:00:00Z",
    }


async def test_a_supervisor_that_cannot_see_the_volumes_yet_does_not_report_zero(pod: Pod) -> None:
    pod.clock.at(5, lambda: pod.dump(pod.mine().rollout_file(0)))
    await pod.supervise(30)
    rollouts = pod.run.traces / "a1" / "i1" / "traces" / "rollout_data"
    rollouts.rename(rollouts.with_name("away"))
    rollouts.symlink_to(rollouts)  # a loop: listing it fails as a broken volume does
    await pod.supervise(30)
    assert pod.cluster.last["rollout"]["collected"] == 1
    assert any("rollout_data" in line for line in pod.said)
