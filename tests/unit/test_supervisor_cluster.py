"""The supervisor's own calls on the API server: the right requests, and each answer read for what it says."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio import client

from harborrl_trainer.supervisor.cluster import (
    ClusterUnavailableError,
    ConflictError,
    KubernetesCluster,
    Stored,
)
from support import jobs

UID = "5f0c2a9e-8a1d-4a53-9a36-0b6f1f8e7d10"


@dataclass
class Server:
    """Answers every request alike and remembers what was asked."""

    answer: dict[str, Any]
    status: int = 200
    asked: list[tuple[str, str, str, Any]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        self.asked.append((request.method, request.path, request.content_type, body))
        return web.json_response(self.answer, status=self.status)


@asynccontextmanager
async def cluster_of(server: Server, tmp_path: Path) -> AsyncIterator[KubernetesCluster]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    api = client.ApiClient(client.Configuration(host=f"http://{host}:{port}"))
    cluster = KubernetesCluster(jobs.job(tmp_path), api)
    try:
        yield cluster
    finally:
        await cluster.close()
        await runner.cleanup()


def config_map(progress: str | None, version: str = "7") -> dict[str, Any]:
    data = {} if progress is None else {"data": {"progress": progress}}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x", "resourceVersion": version}, **data}


async def test_progress_is_merged_into_the_jobs_config_map_against_the_version_seen(tmp_path: Path) -> None:
    server = Server(config_map("{}", version="8"))
    async with cluster_of(server, tmp_path) as cluster:
        assert await cluster.write_progress({"sequence": 1}, "7") == "8"
    ((method, path, kind, body),) = server.asked
    assert (method, path) == ("PATCH", "/api/v1/namespaces/research/configmaps/quickstart-progress")
    assert kind == "application/merge-patch+json"
    assert body == {"metadata": {"resourceVersion": "7"}, "data": {"progress": '{"sequence":1}'}}


@pytest.mark.parametrize(
    ("stored", "document"),
    [
        (None, None),
        ("", None),
        ("{torn", None),
        ("[1]", None),
        (json.dumps({"uid": UID, "sequence": 3}), {"uid": UID, "sequence": 3}),
        (json.dumps({"uid": "of the run before", "sequence": 3}), None),
    ],
)
async def test_what_is_stored_is_read_or_taken_for_nothing(
    tmp_path: Path, stored: str | None, document: dict[str, Any] | None
) -> None:
    async with cluster_of(Server(config_map(stored)), tmp_path) as cluster:
        assert await cluster.read_progress() == Stored(document, "7")


async def test_a_run_that_was_replaced_does_not_write_over_its_successor(tmp_path: Path) -> None:
    successors = config_map(None)
    successors["metadata"]["labels"] = {"harborrl.dev/job-uid": "of the next run"}
    async with cluster_of(Server(successors), tmp_path) as cluster:
        with pytest.raises(ClusterUnavailableError, match="another run of this name"):
            await cluster.read_progress()


@pytest.mark.parametrize(
    ("status", "error"), [(409, ConflictError), (403, ClusterUnavailableError), (503, ClusterUnavailableError)]
)
async def test_a_refused_write_is_a_conflict_or_a_passing_trouble(
    tmp_path: Path, status: int, error: type[Exception]
) -> None:
    async with cluster_of(Server({"kind": "Status"}, status), tmp_path) as cluster:
        with pytest.raises(error) as caught:
            await cluster.write_progress({}, "7")
        assert type(caught.value) is error
        assert str(status) in str(caught.value)


@pytest.mark.parametrize(
    ("metadata", "exists"),
    [
        ({"uid": UID}, True),
        ({"uid": "another"}, False),
        ({"uid": UID, "deletionTimestamp": "2026-01-01T00:00:00Z"}, False),
    ],
)
async def test_a_job_exists_while_its_own_object_does(tmp_path: Path, metadata: dict[str, str], exists: bool) -> None:
    server = Server({"metadata": metadata})
    async with cluster_of(server, tmp_path) as cluster:
        assert await cluster.job_exists() is exists
    assert server.asked[0][1] == "/apis/harborrl.dev/v1alpha1/namespaces/research/harborrljobs/quickstart"


async def test_a_job_that_is_not_found_is_gone(tmp_path: Path) -> None:
    async with cluster_of(Server({"kind": "Status"}, 404), tmp_path) as cluster:
        assert await cluster.job_exists() is False


@pytest.mark.parametrize("status", [403, 500])
async def test_any_other_answer_leaves_it_open(tmp_path: Path, status: int) -> None:
    async with cluster_of(Server({"kind": "Status"}, status), tmp_path) as cluster:
        with pytest.raises(ClusterUnavailableError):
            await cluster.job_exists()


async def test_an_api_server_that_is_not_there_is_a_passing_trouble(tmp_path: Path) -> None:
    api = client.ApiClient(client.Configuration(host="http://127.0.0.1:9"))
    cluster = KubernetesCluster(jobs.job(tmp_path), api)
    with pytest.raises(ClusterUnavailableError):
        await cluster.read_progress()
    await cluster.close()


async def test_a_missing_service_account_is_a_passing_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterUnavailableError, match="Service host/port is not set"):
        await KubernetesCluster(jobs.job(tmp_path)).job_exists()


async def test_a_request_is_read_from_the_jobs_own_config_map_and_its_absence_is_none(tmp_path: Path) -> None:
    request = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}, "data": {"request": '{"id": "r"}'}}
    server = Server(request)
    async with cluster_of(server, tmp_path) as cluster:
        assert await cluster.read_request() == {"id": "r"}
    assert server.asked[0][:2] == ("GET", "/api/v1/namespaces/research/configmaps/quickstart-request")
    async with cluster_of(Server({"kind": "Status"}, 404), tmp_path) as cluster:
        assert await cluster.read_request() is None
    async with cluster_of(Server({"kind": "Status"}, 403), tmp_path) as cluster:
        with pytest.raises(ClusterUnavailableError):
            await cluster.read_request()
