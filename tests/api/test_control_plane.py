"""The API-server-only mode itself: that it is a real one, and that nothing of it stays."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from devcluster.controlplane import RunningControlPlane, admin_tls, control_plane
from devcluster.processes import start_time
from devcluster.settings import KUBERNETES_VERSION

from support.control_plane import admin_client

pytestmark = pytest.mark.api

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, owner: dict[str, str] | None = None) -> dict[str, object]:
    references = [{"apiVersion": "v1", "kind": "ConfigMap", **owner}] if owner else []
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": references},
        "data": {"key": "value"},
    }


def wait_for_deletion(client: httpx.Client, meta: dict[str, Any], seconds: int = 180) -> bool:
    """Watches one ConfigMap, from its creation on, until it is deleted; False if the watch ends first."""
    query = {
        "watch": "1",
        "fieldSelector": f"metadata.name={meta['name']}",
        "resourceVersion": meta["resourceVersion"],  # it may be gone before the watch begins
        "timeoutSeconds": str(seconds),
    }
    with client.stream("GET", CONFIG_MAPS, params=query, timeout=seconds + 10) as events:
        return any(json.loads(line)["type"] == "DELETED" for line in events.iter_lines())


def test_it_reports_the_pinned_version(api_server: RunningControlPlane) -> None:
    with admin_client(api_server) as client:
        assert client.get("/version").json()["gitVersion"] == KUBERNETES_VERSION


def test_an_owned_object_is_collected_when_its_owner_is_deleted(api_server: RunningControlPlane) -> None:
    with admin_client(api_server) as client:
        owner = client.post(CONFIG_MAPS, json=config_map("owner")).raise_for_status().json()
        reference = {"name": "owner", "uid": owner["metadata"]["uid"]}
        made = client.post(CONFIG_MAPS, json=config_map("dependent", reference)).raise_for_status().json()
        client.delete(f"{CONFIG_MAPS}/owner").raise_for_status()
        assert wait_for_deletion(client, made["metadata"])
        assert client.get(f"{CONFIG_MAPS}/dependent").status_code == httpx.codes.NOT_FOUND


def test_a_stranger_is_refused(api_server: RunningControlPlane) -> None:
    with httpx.Client(base_url=api_server.url, verify=False, trust_env=False) as client:  # noqa: S501 - a stranger
        assert client.get("/api/v1/secrets").status_code == httpx.codes.FORBIDDEN


def test_two_run_side_by_side_and_nothing_of_them_stays(tmp_path: Path) -> None:
    first_folder, second_folder = tmp_path / "first", tmp_path / "second"
    with control_plane(first_folder) as first, control_plane(second_folder) as second:
        assert first.url != second.url
        with admin_client(first) as client:
            client.post(CONFIG_MAPS, json=config_map("only-here")).raise_for_status()
        with admin_client(second) as client:
            assert client.get(f"{CONFIG_MAPS}/only-here").status_code == httpx.codes.NOT_FOUND
        records = [
            plane.supervisor.record(name)
            for plane in (first, second)
            for name in ("etcd", "kube-apiserver", "kube-controller-manager")
        ]
        tls = admin_tls(first_folder / "pki")
    assert [record for record in records if record is None] == []
    assert [record for record in records if record and start_time(record.pid) == record.started] == []
    assert not first_folder.exists()
    assert not second_folder.exists()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{first.url}/readyz", verify=tls, trust_env=False)
