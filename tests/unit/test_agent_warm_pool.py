"""Pods that wait for trials, over an API server in memory: taken once, given up for trials, never handed out dead."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.allocating import Patience
from harborrl_agent_server.sandboxes.cluster import KubeError
from harborrl_agent_server.sandboxes.kubernetes import KubernetesSandbox
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from harborrl_agent_server.warmth import Warmth
from support.agent_http import eventually
from support.sandbox_api import RUNNING, SandboxApi, provided, sandbox_of

FULL = 'pods "x" is forbidden: exceeded quota: sandboxes'
WAITING: dict[str, Any] = {
    "phase": "Pending",
    "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}],
}
DEAD: dict[str, Any] = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 1}}}]}


@contextlib.asynccontextmanager
async def warmed(api: SandboxApi, folder: Path, size: int = 1, **changes: Any) -> AsyncIterator[KubernetesProvider]:
    """A provider whose pool is full for the image of a first trial, which is over."""
    async with provided(api, folder, {"warmPool": {"size": size}}, **changes) as provider:
        first = sandbox_of(provider, folder)
        await first.start(force_build=False)
        await first.stop(delete=True)
        await eventually(lambda: provider.warmth().ready == size)
        yield provider


async def begun(provider: KubernetesProvider, folder: Path, **task: Any) -> KubernetesSandbox:
    sandbox = sandbox_of(provider, folder, **task)
    await sandbox.start(force_build=False)
    return sandbox


def warm_pods(api: SandboxApi) -> list[dict[str, Any]]:
    return [pod for pod in api.of("pods") if "harborrl.dev/warm" in pod["metadata"]["labels"]]


async def test_a_trial_takes_a_waiting_pod_by_its_labels_and_another_one_is_made(tmp_path: Path) -> None:
    api = SandboxApi()
    async with warmed(api, tmp_path) as provider:
        waiting = warm_pods(api)[0]["metadata"]["name"]
        sandbox = await begun(provider, tmp_path)
        assert sandbox.name == waiting
        labels = next(pod for pod in api.of("pods") if pod["metadata"]["name"] == waiting)["metadata"]["labels"]
        assert "harborrl.dev/warm" not in labels
        assert labels["harborrl.dev/trial"] == sandbox.scope.run_id
        assert labels["harborrl.dev/sandbox"] == sandbox.own_name
        await eventually(lambda: provider.warmth() == Warmth(ready=1, warm_starts=1, cold_starts=1))
        await sandbox.stop(delete=True)
        assert waiting not in api.names("pods")


async def test_a_waiting_pod_has_its_folders_already_unless_the_task_wants_others(tmp_path: Path) -> None:
    api, ran = SandboxApi(), list[str]()

    def answer(pod: str, _: list[str]) -> tuple[int, str]:
        ran.append(pod)
        return 0, ""

    api.answer = answer
    async with warmed(api, tmp_path, size=2) as provider:
        alike = await begun(provider, tmp_path)
        assert ran.count(alike.name) == 1
        sandbox = sandbox_of(provider, tmp_path)
        sandbox.task_env_config.workdir = "/elsewhere"
        await sandbox.start(force_build=False)
        assert sandbox.name.startswith("sb-warm-")
        assert ran.count(sandbox.name) == 2


async def test_a_pod_that_died_while_it_waited_is_not_handed_out(tmp_path: Path) -> None:
    api = SandboxApi()
    async with warmed(api, tmp_path) as provider:
        api.status = lambda _: WAITING
        dead = warm_pods(api)[0]["metadata"]["name"]
        api.change(dead, **DEAD)
        await eventually(lambda: dead not in api.names("pods"))
        api.status = lambda _: RUNNING
        sandbox = await begun(provider, tmp_path)
        assert sandbox.name != dead


async def test_a_pod_that_died_unseen_is_not_handed_out(tmp_path: Path) -> None:
    api = SandboxApi()
    async with warmed(api, tmp_path) as provider:
        dead = warm_pods(api)[0]
        path = next(path for path in api.objects if path.endswith(dead["metadata"]["name"]))
        api.objects[path] = {**dead, "metadata": {**dead["metadata"], "resourceVersion": "late"}, "status": DEAD}
        sandbox = await begun(provider, tmp_path)
        assert sandbox.name == sandbox.own_name
        await eventually(lambda: path not in api.objects)


async def test_a_pod_that_changed_unseen_and_is_well_is_taken(tmp_path: Path) -> None:
    api = SandboxApi()
    async with warmed(api, tmp_path) as provider:
        pod = warm_pods(api)[0]
        path = next(path for path in api.objects if path.endswith(pod["metadata"]["name"]))
        api.objects[path] = {**pod, "metadata": {**pod["metadata"], "resourceVersion": "late"}}
        assert (await begun(provider, tmp_path)).name == pod["metadata"]["name"]


async def test_waiting_pods_are_given_up_for_a_trial_that_finds_the_quota_full(tmp_path: Path) -> None:
    api = SandboxApi()
    async with warmed(api, tmp_path, size=2) as provider:

        def quota(method: str, path: str) -> None:
            if method == "POST" and path.endswith("/pods") and len(api.of("pods")) >= 2:
                raise KubeError(403, "Forbidden", FULL)

        api.refuse = quota
        other = await begun(provider, tmp_path, docker_image="other:1")
        assert api.names("pods") == [other.name]
        assert provider.warmth().ready == 0


async def test_waiting_pods_are_given_up_for_a_trial_that_no_node_has_room_for(tmp_path: Path) -> None:
    api = SandboxApi()
    async with warmed(api, tmp_path, size=2) as provider:
        full = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
        api.status = lambda _: {"phase": "Pending", "conditions": [full]}
        sandbox = sandbox_of(provider, tmp_path, docker_image="other:1")
        start = asyncio.ensure_future(sandbox.start(force_build=False))
        await eventually(lambda: api.names("pods") == [sandbox.own_name])
        running: dict[str, Any] = RUNNING
        api.change(sandbox.own_name, conditions=None, **running)
        await start


async def test_an_image_whose_waiting_pod_does_not_start_is_left_alone_for_a_while(tmp_path: Path) -> None:
    api = SandboxApi()
    api.status = lambda pod: WAITING if "harborrl.dev/warm" in pod["metadata"]["labels"] else RUNNING
    async with provided(api, tmp_path, {"warmPool": {"size": 1}}) as provider:
        provider.patience = Patience(pull_s=0)
        await begun(provider, tmp_path)
        await eventually(lambda: any(verb == "DELETE" and "/sb-warm-" in path for verb, path in api.requests))
        await begun(provider, tmp_path)
        assert api.requests.count(("POST", provider.pods_path)) == 3


async def test_a_waiting_pod_that_fails_as_nobody_expected_does_not_count_as_starting_for_ever(tmp_path: Path) -> None:
    api = SandboxApi()

    def answer(pod: str, _: list[str]) -> tuple[int, str]:
        if pod.startswith("sb-warm-"):
            raise ValueError("a bug")
        return 0, ""

    api.answer = answer
    async with provided(api, tmp_path, {"warmPool": {"size": 1}}) as provider:
        await begun(provider, tmp_path)
        await eventually(lambda: any(verb == "DELETE" and "/sb-warm-" in path for verb, path in api.requests))
        assert provider.warmth().starting == 0


async def test_a_trial_that_is_cut_off_while_it_takes_a_pod_removes_it(tmp_path: Path) -> None:
    api = SandboxApi()
    async with warmed(api, tmp_path) as provider:
        taken = warm_pods(api)[0]["metadata"]["name"]
        sandbox = sandbox_of(provider, tmp_path)
        start = asyncio.ensure_future(sandbox.start(force_build=False))
        await eventually(lambda: ("PATCH", f"{provider.pods_path}/{taken}") in api.requests)
        start.cancel()
        await asyncio.gather(start, return_exceptions=True)
        await sandbox.destroy()
        assert taken not in api.names("pods")
        assert not sandbox.left


async def test_trials_hold_their_slots_and_the_pool_keeps_to_what_is_free(tmp_path: Path) -> None:
    api = SandboxApi()
    async with warmed(api, tmp_path, size=2, max_concurrent=2) as provider:
        held = [await begun(provider, tmp_path, docker_image=f"image:{number}") for number in range(2)]
        await eventually(lambda: provider.warmth().ready == 2)
        assert len(api.of("pods")) == 4
        for sandbox in held:
            await sandbox.stop(delete=True)
        await eventually(lambda: provider.warmth().ready == 4)


async def test_a_sandbox_without_network_has_its_own_pool_and_an_allowlist_has_none(tmp_path: Path) -> None:
    api = SandboxApi()
    none = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)
    async with warmed(api, tmp_path) as provider:
        first = sandbox_of(provider, tmp_path, none)
        await first.start(force_build=False)
        assert not first.name.startswith("sb-warm-")
        await eventually(lambda: provider.warmth().ready == 2)
        second = sandbox_of(provider, tmp_path, none)
        await second.start(force_build=False)
        assert second.name.startswith("sb-warm-")
        listed = NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["192.0.2.7"])
        for _ in range(2):
            sandbox = sandbox_of(provider, tmp_path, listed)
            await sandbox.start(force_build=False)
            assert sandbox.name == sandbox.own_name


async def test_a_server_that_leaves_keeps_no_pod_and_makes_none(tmp_path: Path) -> None:
    api = SandboxApi()
    async with warmed(api, tmp_path, size=2) as provider:
        await provider.cool()
        assert api.names("pods") == []
        sandbox = await begun(provider, tmp_path)
        assert api.names("pods") == [sandbox.name]


async def test_a_restarted_server_sweeps_the_pods_that_waited(tmp_path: Path) -> None:
    api = SandboxApi()
    left = {"metadata": {"name": "sb-warm-left", "labels": {}}, "spec": {}}
    async with provided(api, tmp_path) as provider:
        left["metadata"] |= {"labels": provider.labels | {"harborrl.dev/warm": "key"}}
        await api.request("POST", provider.pods_path, body=left)
    async with provided(api, tmp_path):
        assert api.names("pods") == []


async def test_an_image_that_cannot_be_prepared_fails_its_trial_and_keeps_no_pods(tmp_path: Path) -> None:
    api = SandboxApi()
    api.answer = lambda _pod, _argv: (127, "tar: not found")
    async with provided(api, tmp_path, {"warmPool": {"size": 1}}) as provider:
        with pytest.raises(SandboxStartError, match="ImageUnusable"):
            await begun(provider, tmp_path)
        await eventually(lambda: not warm_pods(api))
        assert provider.warmth().ready == 0
