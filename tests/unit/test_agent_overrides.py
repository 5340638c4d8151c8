"""podOverrides of sandboxes: merged where they place, size or mount, refused where they would weaken."""

from pathlib import Path
from typing import Any

import pytest

from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from harborrl_agent_server.sandboxes.override_rules import problems
from harborrl_agent_server.sandboxes.overrides import merged
from harborrl_agent_server.settings import Settings
from support.sandbox_api import SandboxApi, provided, sandbox_of


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", **fields}]}


@pytest.mark.parametrize(
    ("overrides", "where"),
    [
        ({"hostNetwork": True}, "hostNetwork"),
        ({"hostNetwork": None}, "hostNetwork"),
        ({"hostPID": True}, "hostPID"),
        ({"hostIPC": True}, "hostIPC"),
        ({"shareProcessNamespace": True}, "shareProcessNamespace"),
        ({"serviceAccountName": "admin"}, "serviceAccountName"),
        ({"serviceAccount": "admin"}, "serviceAccount"),
        ({"automountServiceAccountToken": True}, "automountServiceAccountToken"),
        ({"securityContext": {"runAsUser": 1}}, "securityContext"),
        ({"activeDeadlineSeconds": None}, "activeDeadlineSeconds"),
        ({"hostAliases": []}, "hostAliases"),
        ({"nodeName": "n1"}, "nodeName"),
        (container(securityContext={"privileged": True}), "containers.main.securityContext"),
        (container(command=["sh"]), "containers.main.command"),
        (container(image="other"), "containers.main.image"),
        (container(ports=[{"containerPort": 1, "hostPort": 1}]), "containers.main.ports.hostPort"),
        (container(volumeDevices=[{"name": "d"}]), "containers.main.volumeDevices"),
        (container(env=[{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s"}}}]), "containers.main.env.K"),
        (container(envFrom=[{"secretRef": {"name": "s"}}]), "containers.main.envFrom"),
        ({"initContainers": [{"name": "i", "securityContext": {}}]}, "initContainers.i.securityContext"),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "volumes.v.hostPath"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "volumes.v.secret"),
        ({"volumes": [{"name": "v", "projected": {"sources": []}}]}, "volumes.v.projected"),
        ({"containers": [{"image": "x"}]}, "containers"),
        ({"containers": {"main": {}}}, "containers"),
    ],
)
def test_what_weakens_a_sandbox_ends_the_server_at_its_start_with_one_line(
    overrides: dict[str, Any], where: str, tmp_path: Path
) -> None:
    settings = Settings(tasks_dir=tmp_path, trials_dir=tmp_path, sandbox_config={"podOverrides": overrides})
    with pytest.raises(StartupError) as raised:
        KubernetesProvider.from_settings(settings)
    assert f"podOverrides: Value error, {where}" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "overrides",
    [
        {"affinity": {"podAntiAffinity": {}}, "topologySpreadConstraints": [], "schedulerName": "mine"},
        {"imagePullSecrets": [{"name": "registry"}], "priorityClassName": "low", "dnsPolicy": "Default"},
        {
            "volumes": [
                {"name": "cache", "emptyDir": {"medium": "Memory"}},
                {"name": "data", "persistentVolumeClaim": {}},
            ]
        },
        container(volumeMounts=[{"name": "cache", "mountPath": "/cache"}], env=[{"name": "A", "value": "b"}]),
        container(resources={"limits": {"example.com/fpga": 1}}, livenessProbe={}),
        {"initContainers": [{"name": "warm", "image": "warm:1", "command": ["true"]}]},
    ],
)
def test_what_places_sizes_or_mounts_is_taken(overrides: dict[str, Any]) -> None:
    assert list(problems(overrides)) == []


async def test_overrides_are_merged_by_name_and_what_they_add_may_do_no_more_than_a_sandbox(tmp_path: Path) -> None:
    overrides = {
        "nodeSelector": {"pool": "cpu"},
        "volumes": [{"name": "cache", "emptyDir": {}}],
        "containers": [{"name": "main", "env": [{"name": "B", "value": "2"}]}, {"name": "side", "image": "side:1"}],
        "initContainers": [{"name": "warm", "image": "warm:1"}],
    }
    config = {"podOverrides": overrides, "nodeSelector": {"disk": "ssd"}}
    async with provided(SandboxApi(), tmp_path, config) as provider:
        spec = sandbox_of(provider, tmp_path).manifest()["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd", "pool": "cpu"}
    main, side = spec["containers"]
    assert main["env"] == [{"name": "B", "value": "2"}]
    assert (main["image"], side["image"]) == ("image:1", "side:1")
    assert side["securityContext"] == main["securityContext"] == spec["initContainers"][0]["securityContext"]


def test_lists_without_names_are_replaced() -> None:
    assert merged({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}) == {"tolerations": [{"key": "b"}]}
