"""How a sandbox pod gets the tools bundle: which pods, in which way, and what a try of the nodes changes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harborrl_agent_server.agents.tools import BUNDLE
from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.images import SandboxConfig
from harborrl_agent_server.sandboxes.pods import State, judge, sandbox_pod
from harborrl_agent_server.sandboxes.tools_volume import TRIES, VOLUME, ToolsVolume, probe_pod, with_copy
from support.sandbox_api import SandboxApi, provided, sandbox_of

IMAGE = "registry.example/agent-tools:1"


def pod(**limits: str) -> dict[str, Any]:
    return sandbox_pod(
        name="sb-task",
        namespace="sandboxes",
        labels={"harborrl.dev/role": "sandbox", "harborrl.dev/trial": "t1"},
        owner={"kind": "ConfigMap", "name": "anchor", "uid": "u"},
        image="task:1",
        resources={"requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": limits},
        life_s=60,
        config=SandboxConfig(),
    )


class Nodes:
    """Starts the pods of tries, or says why not."""

    def __init__(self, *ends: str) -> None:
        self.ends = list(ends)
        self.tried: list[dict[str, Any]] = []

    async def attempt(self, manifest: dict[str, Any]) -> None:
        self.tried.append(manifest)
        if end := self.ends[len(self.tried) - 1]:
            raise SandboxStartError(end, "said")


async def after_a_try(tools: ToolsVolume, nodes: Nodes) -> dict[str, Any]:
    """A pod, once the try that an earlier pod began has ended."""
    tools.mounted(pod(), "all", nodes.attempt)
    assert tools.trying is not None
    await tools.trying
    return tools.mounted(pod(), "all", nodes.attempt)


def copies(manifest: dict[str, Any]) -> list[list[str]]:
    return [container["command"] for container in manifest["spec"].get("initContainers", [])]


async def test_a_pod_whose_agent_needs_no_tools_is_as_it_was_and_nothing_is_tried() -> None:
    nodes = Nodes()
    assert ToolsVolume(IMAGE).mounted(pod(), None, nodes.attempt) == pod()
    for none in (None, ""):
        assert ToolsVolume(none).mounted(pod(), "all", nodes.attempt) == pod()
    await asyncio.sleep(0)
    assert nodes.tried == []


async def test_the_first_pod_does_not_wait_for_the_try_and_gets_a_copy() -> None:
    nodes = Nodes("")
    first = ToolsVolume(IMAGE).mounted(pod(), "terminal", nodes.attempt)
    assert nodes.tried == []
    assert copies(first) == [["/bin/copy-tools", "/target", "terminal"]]
    assert first["spec"]["volumes"] == [{"name": VOLUME, "emptyDir": {}}]
    assert first["spec"]["containers"][0]["volumeMounts"] == [{"name": VOLUME, "mountPath": BUNDLE, "readOnly": True}]


async def test_where_the_try_ran_later_pods_mount_the_image_itself() -> None:
    nodes = Nodes("")
    later = await after_a_try(ToolsVolume(IMAGE), nodes)
    assert copies(later) == []
    assert later["spec"]["volumes"] == [{"name": VOLUME, "image": {"reference": IMAGE, "pullPolicy": "IfNotPresent"}}]
    assert len(nodes.tried) == 1


@pytest.mark.parametrize("end", ["CreateContainerError", "RunContainerError", "StartError", "Error"])
async def test_where_a_node_runs_nothing_from_an_image_the_bundle_is_copied_for_good(end: str) -> None:
    nodes = Nodes(end)
    tools = ToolsVolume(IMAGE)
    assert copies(await after_a_try(tools, nodes))
    tools.mounted(pod(), "all", nodes.attempt)
    await asyncio.sleep(0)
    assert len(nodes.tried) == 1


async def test_a_try_that_says_nothing_about_the_nodes_is_made_again_a_few_times() -> None:
    nodes = Nodes(*["ImagePullFailed"] * TRIES)
    tools = ToolsVolume(IMAGE)
    for _ in range(TRIES + 2):
        await after_a_try(tools, nodes)
    assert len(nodes.tried) == TRIES


async def test_a_node_that_does_not_mount_what_others_do_brings_the_copy_back() -> None:
    nodes = Nodes("")
    tools = ToolsVolume(IMAGE)
    await after_a_try(tools, nodes)
    for other in ("Unschedulable", "RunContainerError"):
        tools.failed(SandboxStartError(other, "no node, no shell in the task's image"))
    assert not copies(tools.mounted(pod(), "all", nodes.attempt))
    tools.failed(SandboxStartError("CreateContainerError", "no mount"))
    assert copies(tools.mounted(pod(), "all", nodes.attempt))


def test_a_copy_asks_for_no_device_and_does_not_eat_the_tasks_storage() -> None:
    given = with_copy(pod(**{"ephemeral-storage": "100Mi", "nvidia.com/gpu": "1"}), IMAGE, "all")
    assert given["spec"]["containers"][0]["resources"]["limits"]["ephemeral-storage"] == str((100 + 512) * 2**20)
    init = given["spec"]["initContainers"][0]
    assert init["resources"] == {"requests": {"cpu": "1"}, "limits": {"ephemeral-storage": "100Mi"}}
    assert init["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_try_is_a_pod_of_its_own_that_runs_from_the_volume() -> None:
    probe = probe_pod(pod(), IMAGE)
    container = probe["spec"]["containers"][0]
    assert probe["metadata"]["name"] != "sb-task"
    assert probe["metadata"]["ownerReferences"] == pod()["metadata"]["ownerReferences"]
    assert container["command"][0].startswith(container["volumeMounts"][0]["mountPath"] + "/")
    assert container["image"] == IMAGE


def test_an_init_container_whose_image_cannot_be_pulled_says_so() -> None:
    waiting = {"state": {"waiting": {"reason": "ErrImagePull", "message": "agent-tools:1 not found"}}}
    main = {"state": {"waiting": {"reason": "PodInitializing"}}}
    status = {"phase": "Pending", "initContainerStatuses": [waiting], "containerStatuses": [main]}
    verdict = judge({"metadata": {"name": "sb"}, "status": status})
    assert (verdict.state, verdict.reason) == (State.TROUBLED, "ImagePullFailed")
    assert "agent-tools:1" in verdict.message


async def test_only_the_sandbox_in_which_the_agent_works_gets_them(tmp_path: Path) -> None:
    api = SandboxApi()
    async with provided(api, tmp_path, {"tools": {"image": IMAGE}}) as provider:
        for number, part in enumerate((None, "terminal", "all")):
            sandbox = sandbox_of(provider, tmp_path / str(number))
            sandbox.scope.tools = part  # type: ignore[assignment] # of the list above
            assert copies(sandbox.manifest()) == ([["/bin/copy-tools", "/target", part]] if part else [])
        verifier = sandbox_of(provider, tmp_path / "verifier")
        verifier.scope.tools = "all"
        verifier.scope.sandboxes.insert(0, sandbox)
        assert copies(verifier.manifest()) == []
        assert provider.tools.trying is not None
        await provider.tools.trying
        assert api.names("pods") == []
