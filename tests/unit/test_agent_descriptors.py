"""File descriptors: as many as the process may have, a word where its trials do not fit, none for strangers."""

import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from harborrl_agent_server.descriptors import MOST, raise_limit, too_few
from support.agent_http import SessionServer, replies, serving
from support.server_process import free_port, process

POOR = """import resource, runpy
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
runpy.run_module("harborrl_agent_server", run_name="__main__")"""


@pytest.fixture
def hard() -> Iterator[int]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_server_takes_what_it_may_have(hard: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    expected = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    assert raise_limit() == expected
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (expected, hard)
    assert raise_limit() == expected


@pytest.mark.parametrize(
    ("allowed", "max_concurrent", "fits"),
    [(4096, 64, True), (1024, 8, True), (1024, 128, False), (8192, 512, True), (8192, 1024, False)],
)
def test_slots_that_cannot_all_be_used_are_told(allowed: int, max_concurrent: int, fits: bool) -> None:
    told = too_few(allowed, max_concurrent)
    assert (told is None) is fits
    assert told is None or (f"--max-concurrent {max_concurrent} " in told and f"may have {allowed}" in told)


async def test_a_sandbox_that_opens_a_thousand_connections_costs_no_trial(tasks: Path, tmp_path: Path) -> None:
    port = free_port()
    program = ["-c", POOR, "--max-concurrent", "20", "--gateway-port", str(port)]
    async with (
        process(tasks, tmp_path, program) as (_, url),
        serving(SessionServer(replies("TASK_DONE")).app) as session_url,
        httpx.AsyncClient(timeout=120) as client,
    ):
        with contextlib.ExitStack() as opened:
            for _ in range(1000):
                opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            body = {"instance_id": "write-greeting", "base_url": f"{session_url}/sessions/1/v1", "model": "m"}
            answer = (await client.post(f"{url}/run", json=body)).json()
            metrics = (await client.get(f"{url}/metrics")).text
    assert answer["exit_status"] == "Submitted"
    assert 'harborrl_agent_gateway_refused_connections_total{why="all"}' in metrics
    assert "--max-concurrent 20 may take" in (tmp_path / "log").read_text()
