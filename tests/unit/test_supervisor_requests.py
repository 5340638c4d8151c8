"""What the operator asks reaches the driver, what it takes back does not, and trials of an ended driver are flushed."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harborrl_trainer.layout import IncarnationId
from harborrl_trainer.supervisor.requests import wanted_stop
from support import jobs
from support.supervision import Pod

CONTRACT: dict[str, Any] = json.loads((jobs.CONTRACTS / "request.json").read_text())


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    jobs.make_volumes(tmp_path)
    pod = Pod(tmp_path)
    pod.clock.at(3, pod.run_driver)
    return pod


def ask(pod: Pod, incarnation: int = 1, id_: str = "r1") -> Callable[[], None]:
    return partial(
        setattr, pod.cluster, "request", CONTRACT | {"id": id_, "stop": {"attempt": 1, "incarnation": incarnation}}
    )


def test_the_contracts_request_is_for_the_incarnation_that_it_names_and_no_other() -> None:
    assert wanted_stop(CONTRACT, CONTRACT["uid"], IncarnationId(1, 2)) == CONTRACT["id"]
    assert wanted_stop(CONTRACT, CONTRACT["uid"], IncarnationId(1, 3)) is None
    assert wanted_stop(CONTRACT, CONTRACT["uid"], IncarnationId(2, 2)) is None
    assert wanted_stop(CONTRACT, "of another run", IncarnationId(1, 2)) is None


@pytest.mark.parametrize("document", [None, {}, {"uid": CONTRACT["uid"]}, {"uid": CONTRACT["uid"], "stop": "now"}])
def test_anything_else_asks_nothing(document: dict[str, Any] | None) -> None:
    assert wanted_stop(document, CONTRACT["uid"], IncarnationId(1, 2)) is None


async def test_a_driver_that_is_asked_saves_stops_and_has_its_trials_flushed(pod: Pod) -> None:
    pod.clock.at(20, ask(pod))
    pod.clock.at(40, lambda: pod.end_driver(75, "stopped on request\n"))
    await pod.supervise(60)
    assert pod.mine().stop_request.read_text() == "request r1\n"
    assert pod.cluster.last["driver"]["state"] == "STOPPED"
    assert pod.cluster.last["request"] == {"id": "r1", "flushed": 3}
    assert pod.agents.flushes == [frozenset({"session-1"})]


async def test_the_report_says_that_the_driver_was_told_before_it_has_stopped(pod: Pod) -> None:
    pod.clock.at(20, ask(pod))
    await pod.supervise(60)
    assert pod.cluster.last["driver"]["state"] == "RUNNING"
    assert pod.cluster.last["request"] == {"id": "r1", "flushed": None}


async def test_a_request_that_is_taken_back_is_taken_from_the_driver(pod: Pod) -> None:
    pod.clock.at(20, ask(pod))
    pod.clock.at(40, partial(setattr, pod.cluster, "request", None))
    await pod.supervise(60)
    assert not pod.mine().stop_request.exists()
    assert pod.cluster.last["request"] is None


async def test_a_new_supervisor_takes_back_what_the_one_before_it_told(pod: Pod) -> None:
    pod.clock.at(20, ask(pod))
    await pod.supervise(30)
    pod.cluster.request = None
    await pod.supervise(30)
    assert not pod.mine().stop_request.exists()


async def test_a_wish_that_a_person_wrote_is_left_alone(pod: Pod) -> None:
    pod.clock.at(10, lambda: pod.mine().stop_request.write_text("please\n"))
    await pod.supervise(60)
    assert pod.mine().stop_request.read_text() == "please\n"


async def test_a_request_for_another_incarnation_stops_nobody(pod: Pod) -> None:
    pod.clock.at(20, ask(pod, incarnation=2))
    await pod.supervise(60)
    assert not pod.mine().stop_request.exists()


async def test_a_request_that_cannot_be_read_is_read_later(pod: Pod) -> None:
    pod.clock.at(19, partial(setattr, pod.cluster, "down", True))
    pod.clock.at(20, ask(pod))
    pod.clock.at(50, partial(setattr, pod.cluster, "down", False))
    await pod.supervise(90)
    assert any("request not read: HTTP 503" in line for line in pod.said)
    assert pod.mine().stop_request.exists()


async def test_the_pods_own_end_is_not_undone_by_a_request_that_is_taken_back(pod: Pod) -> None:
    pod.clock.at(10, ask(pod))
    pod.clock.at(20, pod.terminate)
    pod.clock.at(21, partial(setattr, pod.cluster, "request", None))
    pod.clock.at(26, lambda: pod.end_driver(75) if pod.mine().stop_request.exists() else None)
    await pod.supervise(50)
    assert pod.ray.stops == []
    assert pod.marks.released


async def test_a_killed_driver_leaves_no_trials_behind_and_a_finished_one_has_none(pod: Pod) -> None:
    pod.clock.at(20, lambda: pod.end_driver(137))
    await pod.supervise(40)
    assert pod.agents.flushes == [frozenset({"session-1"})]
    assert pod.cluster.last["request"] is None


async def test_a_finished_driver_is_not_flushed(pod: Pod) -> None:
    pod.clock.at(20, lambda: pod.end_driver(0))
    await pod.supervise(40)
    assert pod.agents.flushes == []


async def test_an_agent_server_that_takes_no_flush_does_not_hold_the_verdict_back(pod: Pod) -> None:
    pod.agents.down = True
    pod.clock.at(20, lambda: pod.end_driver(75))
    await pod.supervise(30)
    assert pod.cluster.states[-1] == "STOPPED"
    assert any("flush: http://agents/flush: ConnectError" in line for line in pod.said)
