"""Whatever a row of a data set may hold, sent to a server process: refused by status or outcome, never by a fault."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.agent_http import SessionServer, replies, serving
from support.agent_server import MARKS
from support.agent_tasks import write_task
from support.server_process import process, text_of

pytestmark = MARKS

TASK = "write-greeting"
ODD_URLS = [
    "http://169.254.169.254/sessions/s/v1",
    "http://169.254.169.254/latest/meta-data",
    "http://[::ffff:169.254.169.254]/sessions/s/v1",
    "http://0251.0376.0251.0376/sessions/s/v1",
    "http://metadata.google.internal/sessions/s/v1",
    "http://[/sessions/s/v1",
    "http://[",
    "http://[::1/sessions/s/v1",
    "http://host:99999/sessions/s/v1",
    "http://host:port/sessions/s/v1",
    "http://user:pw@host/sessions/s/v1",
    "http:///sessions/s/v1",
    "http://h\u0000st/sessions/s/v1",
    "http://h st/sessions/s/v1",
    "http://\u202e/sessions/s/v1",
    "http://host/sessions/s\r\nX-Header: y/v1",
    "http://ho\nst/sessions/s/v1",
    "file:///etc/passwd",
    "gopher://host/sessions/s/v1",
    "//host/sessions/s/v1",
    "not a url",
    "",
]
ODD_AGENTS = [
    "os:system",
    "harborrl_agent_server.agents.bash:BashAgent",
    "oracle",
    "../bash",
    "BASH ",
    "x" * 4000,
]
ODD_IDS = [
    "..",
    "../write-greeting",
    "/etc",
    "a/b",
    "",
    " ",
    "\u0000",
    "\ud7ff",
    "write-greeting\n",
    "x" * 100_000,
    "CON",
    "-rf",
]
MALFORMED = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"\xff\xfe",
    b'{"instance_id": 7}',
    b'{"instance_id": ["a"]}',
    b'{"instance_id": "a", "sampling_params": []}',
    b'{"instance_id": "a", "max_seq_len": "many"}',
    b'{"instance_id": "a"} trailing',
]  # fmt: skip


def not_run(answer: dict[str, Any]) -> bool:
    """Nothing that could train, and no sandbox was made for it."""
    phases = set(answer["phase_seconds"])
    return answer["infra_failure"] and not answer["eval_report"] and not answer["reward"] and phases <= {"queue"}


class Server:
    """A server process, its address, and a session that answers."""

    def __init__(self, url: str, session_url: str, log: Path, client: httpx.AsyncClient) -> None:
        self.url, self.session_url, self.log, self.client = url, session_url, log, client
        self.asked = 0

    async def run(self, **changes: Any) -> dict[str, Any]:
        self.asked += 1
        body = {"instance_id": TASK, "base_url": f"{self.session_url}/sessions/s{self.asked}/v1", **changes}
        answer = await self.client.post(f"{self.url}/run", content=json.dumps(body))
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    async def outcomes(self) -> dict[str, int]:
        health = (await self.client.get(f"{self.url}/health")).json()
        assert (health["status"], health["in_flight"], health["queued"]) == ("ok", 0, 0)
        counted: dict[str, int] = health["outcomes"]
        return counted


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """Whatever is sent to it, it fails nowhere inside, and works on."""
    tasks = tmp_path / "tasks"
    write_task(tasks)
    async with (
        process(tasks, tmp_path, ["-m", "harborrl_agent_server"]) as (_, url),
        serving(SessionServer(replies("TASK_DONE")).app) as session_url,
        httpx.AsyncClient(timeout=120, trust_env=False) as client,
    ):
        server = Server(url, session_url, tmp_path / "log", client)
        yield server
        assert (await server.run())["exit_status"] == "Submitted"
    assert "Traceback" not in text_of(tmp_path / "log")


async def test_an_address_that_is_no_session_is_refused_and_never_asked(server: Server) -> None:
    for url in ODD_URLS:
        answer = await server.run(base_url=url)
        assert not_run(answer), url
        assert answer["exit_status"] == "ModelEndpointFailed", url
        assert answer["message"], url
    assert await server.outcomes() == {"ModelEndpointFailed": len(ODD_URLS)}


async def test_a_metadata_address_in_disguise_is_refused_at_the_connection(server: Server) -> None:
    for host in ("2852039166", "0xa9fea9fe"):
        answer = await server.run(base_url=f"http://{host}/sessions/s/v1")
        assert (answer["exit_status"], answer["infra_failure"]) == ("ModelEndpointFailed", True), host
        assert "never a model endpoint" in answer["message"], host


async def test_an_agent_that_is_not_offered_is_refused_and_no_code_of_its_name_is_run(server: Server) -> None:
    for name in ODD_AGENTS:
        answer = await server.run(agent_name=name)
        assert not_run(answer), name
        assert answer["exit_status"] == "InvalidAgent", name
        assert len(answer["message"]) < 400, name


async def test_an_empty_name_of_an_agent_is_the_servers_own(server: Server) -> None:
    assert (await server.run(agent_name=""))["exit_status"] == "Submitted"


async def test_an_odd_id_is_refused_by_its_outcome(server: Server) -> None:
    for name in ODD_IDS:
        answer = await server.run(instance_id=name)
        assert not_run(answer), name
        assert answer["exit_status"] in {"InvalidInstanceId", "TaskNotFound"}, name


async def test_ten_megabytes_of_columns_and_names_that_nobody_knows_change_nothing(server: Server) -> None:
    columns = {"metadata": {"patch": "x" * 10_000_000}, "unknown": [None, {"deep": [1]}], "": "", "reward": 1.0}
    answer = await server.run(**columns)
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 0.0)


async def test_what_is_no_request_is_422_and_begins_nothing(server: Server) -> None:
    for body in MALFORMED:
        answer = await server.client.post(f"{server.url}/run", content=body)
        assert answer.status_code == 422, body
    assert await server.outcomes() == {}


async def test_more_than_the_limit_is_413(server: Server) -> None:
    answer = await server.client.post(f"{server.url}/run", content=b" " * (32 * 1024 * 1024 + 1))
    assert answer.status_code == 413
