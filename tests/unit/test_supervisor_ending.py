"""What the supervisor does when its pod, its driver or it alone has to go."""

from collections.abc import Callable
from pathlib import Path

import pytest

from support import jobs
from support.supervision import Pod


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    jobs.make_volumes(tmp_path)
    return Pod(tmp_path)


def saves_on_request(pod: Pod, seconds: float, exit_code: int = 75) -> Callable[[], None]:
    """A driver that sees the request at its next look and ends `seconds` later."""

    def look() -> None:
        if pod.mine().stop_request.exists():
            pod.clock.at(pod.clock.elapsed + seconds, lambda: pod.end_driver(exit_code, "saved iter_0000001\n"))
        else:
            pod.clock.at(pod.clock.elapsed + 1, look)

    return look


async def test_a_pod_that_goes_while_its_job_stays_is_saved_first(pod: Pod) -> None:
    pod.clock.at(5, pod.run_driver)
    pod.clock.at(20, pod.terminate)
    pod.clock.at(20, saves_on_request(pod, 8))
    await pod.supervise(60)
    assert pod.marks.released
    assert pod.ray.stops == []
    assert pod.cluster.last["driver"]["state"] == "STOPPED"
    assert pod.cluster.last["driver"]["message"] == "saved iter_0000001"
    assert pod.cluster.last["driver"]["failureClass"] is None


async def test_a_driver_that_does_not_save_in_time_is_stopped_and_the_miss_is_told(pod: Pod) -> None:
    pod.clock.at(20, pod.terminate)
    released_at: list[float] = []

    def watch() -> None:
        if pod.marks.released:
            released_at.append(pod.clock.elapsed)
        else:
            pod.clock.at(pod.clock.elapsed + 1, watch)

    pod.clock.at(20, watch)
    await pod.supervise(80)
    assert pod.ray.stops == ["quickstart-a1-i1"]
    assert pod.job.checkpoint.grace_seconds <= released_at[0] - 20 <= pod.job.checkpoint.grace_seconds + 15
    assert "CheckpointMissed" in pod.cluster.last["driver"]["message"]


async def test_a_pod_whose_job_is_gone_is_cancelled_at_once(pod: Pod) -> None:
    pod.cluster.exists = False
    pod.clock.at(5, pod.run_driver)
    pod.clock.at(20, pod.terminate)
    await pod.supervise(25)
    assert pod.ray.stops == ["quickstart-a1-i1"]
    assert not pod.mine().stop_request.exists()
    assert pod.marks.released


async def test_a_job_that_is_deleted_while_its_driver_saves_lets_the_head_go_at_once(pod: Pod) -> None:
    pod.clock.at(5, pod.run_driver)
    pod.clock.at(20, pod.terminate)
    pod.clock.at(27, lambda: setattr(pod.cluster, "exists", False))
    pod.clock.at(27, lambda: pod.said.append(f"released {pod.marks.released}"))
    pod.clock.at(34, lambda: pod.said.append(f"released 7 s later: {pod.marks.released}"))
    await pod.supervise(35)
    assert pod.mine().stop_request.exists()
    assert pod.ray.stops == ["quickstart-a1-i1"]
    assert [line for line in pod.said if line.startswith("released")] == ["released False", "released 7 s later: True"]
    assert "the job was deleted while the driver saved; it is stopped" in pod.said
    assert not any("CheckpointMissed" in document["driver"]["message"] for _, document in pod.cluster.writes)


async def test_an_api_server_that_is_away_during_the_save_does_not_end_it(pod: Pod) -> None:
    pod.clock.at(20, pod.terminate)
    pod.clock.at(24, lambda: setattr(pod.cluster, "down", True))
    pod.clock.at(20, saves_on_request(pod, 12))
    await pod.supervise(80)
    assert pod.ray.stops == []
    assert pod.marks.released


async def test_a_job_that_cannot_be_asked_after_is_taken_to_exist(pod: Pod) -> None:
    pod.cluster.down = True
    pod.clock.at(20, pod.terminate)
    pod.clock.at(20, saves_on_request(pod, 3))
    await pod.supervise(60)
    assert pod.cluster.questions == 3
    assert pod.mine().stop_request.exists()
    assert pod.ray.stops == []
    assert pod.marks.released


async def test_a_volume_that_takes_no_request_does_not_hold_the_pod(pod: Pod) -> None:
    def break_volume() -> None:
        folder = pod.mine().checkpoints
        folder.rmdir()
        folder.write_text("a file where the checkpoints belong")

    pod.clock.at(15, break_volume)
    pod.clock.at(20, pod.terminate)
    await pod.supervise(80)
    assert any("cannot ask the driver to save" in line for line in pod.said)
    assert pod.ray.stops == ["quickstart-a1-i1"]
    assert pod.marks.released


async def test_a_driver_that_has_ended_does_not_hold_its_pod(pod: Pod) -> None:
    pod.clock.at(10, lambda: pod.end_driver(0))
    pod.clock.at(20, pod.terminate)
    await pod.supervise(22)
    assert pod.marks.released
    assert pod.ray.stops == []


async def test_a_pod_that_goes_before_ray_is_up_is_released_and_submits_nothing(pod: Pod) -> None:
    pod.ray.down = True
    pod.clock.at(10, pod.terminate)
    await pod.supervise(30)
    assert pod.marks.released
    assert pod.ray.submissions == []


async def test_a_supervisor_that_restarts_while_the_pod_goes_still_saves_its_driver(pod: Pod) -> None:
    await pod.supervise(10)
    pod.terminate()
    pod.clock.at(12, saves_on_request(pod, 3))
    await pod.supervise(40)
    assert pod.cluster.last["driver"]["state"] == "STOPPED"
    assert pod.ray.stops == []
    assert pod.marks.released


async def test_a_signal_to_the_sidecar_alone_leaves_the_driver_running(pod: Pod) -> None:
    pod.clock.at(5, pod.run_driver)
    await pod.supervise(20)
    assert pod.ray.jobs["quickstart-a1-i1"].status == "RUNNING"
    assert not pod.marks.released
    assert not pod.mine().stop_request.exists()
