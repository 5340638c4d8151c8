"""All of `engine: miles` on one machine: the product's argv, its side of the rollouts, driver, checks, agent server.

Only Miles itself is the stand-in.
"""

import asyncio
import json
import socket
from pathlib import Path

import pytest

from harborrl_trainer.native.serving import serving
from support.fake_agent_server import FakeAgentServer, outcome
from support.miles_run import Run, product_launch

pytest.importorskip(
    "harborrl_trainer.miles.wrapper", reason="Miles' side of the rollout layer is not part of this tree"
)


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def run_beside(tmp_path: Path, port: int) -> Run:
    session, router = free_ports()
    return Run.of(
        tmp_path,
        make=product_launch(),
        model__type="qwen2.5-0.5B",
        explicitConfig=["milesSrcCommit"],
        gpusPerNode=0,
        config__numRollout=2,
        ports={"session": session, "sessionCount": 1, "router": router},
        trainerHost="127.0.0.1",
        agentServer__url=f"http://127.0.0.1:{port}",
    )


async def test_every_trial_goes_to_the_agent_server_and_comes_back_as_a_sample_and_a_line(tmp_path: Path) -> None:
    server = FakeAgentServer(lambda _instance, _answers: 0.5)
    async with serving(server.app(), 0) as port:
        run = run_beside(tmp_path, port)
        done = await asyncio.to_thread(run.run, checked=True)
    assert done.exit_code == 0, done.said
    assert len(server.requests) == 2 * 2 * 4
    assert {request["agent_name"] for request in server.requests} == {"bash"}
    (log,) = run.mine().trials.glob("*.jsonl")
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [record["kept"] for record in records] == [True] * 16
    assert {record["rollout_id"] for record in records} == {0, 1}
    assert {record["reward"] for record in records} == {0.5}
    assert run.sealed() == [1]


async def test_a_run_whose_every_trial_infrastructure_fails_is_given_up_with_69(tmp_path: Path) -> None:
    async def down(_body: object) -> dict[str, object]:
        return outcome("SandboxUnavailable", infra_failure=True)

    server = FakeAgentServer(lambda _instance, _answers: 0.5, before_trial=down)
    async with serving(server.app(), 0) as port:
        run = run_beside(tmp_path, port)
        done = await asyncio.to_thread(run.run, checked=True)
    assert done.exit_code == 69, done.said
    assert done.last_line.startswith("rollout: ")


async def test_an_agent_server_that_is_too_small_is_refused_before_miles_starts(tmp_path: Path) -> None:
    server = FakeAgentServer(lambda _instance, _answers: 0.5, capacity=4)
    async with serving(server.app(), 0) as port:
        run = run_beside(tmp_path, port)
        done = await asyncio.to_thread(run.run, checked=True)
    assert done.exit_code == 64, done.said
    assert "runs 4 trials at once and the job keeps 8 in flight" in done.last_line
    assert run.collected() == []
