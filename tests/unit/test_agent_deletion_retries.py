"""Pods of a trial and an API server that is slow or away: created late, deleted late, never left."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, override

import pytest

from harborrl_agent_server.sandboxes.cluster import KubeError
from harborrl_agent_server.sandboxes.images import SandboxConfig
from harborrl_agent_server.sandboxes.kubernetes import KubernetesSandbox
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from harborrl_agent_server.settings import JobIdentity, Settings
from support.sandbox_api import SandboxApi, provided, sandbox_of


class Pods(SandboxApi):
    """`creating` holds creations of pods back, `away` refuses deletions."""

    def __init__(self) -> None:
        super().__init__()
        self.creating = asyncio.Event()
        self.asked = asyncio.Event()
        self.away = False
        self.deletions = 0

    @property
    def pods(self) -> list[str]:
        return self.names("pods")

    @override
    async def request(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        if method == "POST" and path.endswith("/pods"):
            self.asked.set()
            await self.creating.wait()
        if method == "DELETE":
            self.deletions += 1
            if self.away:
                raise KubeError(403, "Forbidden", "not now")
        return await super().request(method, path, **arguments)


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[KubernetesSandbox]:
    async with provided(Pods(), tmp_path) as provider:
        yield sandbox_of(provider, tmp_path)


def pods_of(sandbox: KubernetesSandbox) -> Pods:
    assert isinstance(sandbox.provider.cluster, Pods)
    return sandbox.provider.cluster


async def begin(sandbox: KubernetesSandbox) -> "asyncio.Task[None]":
    start = asyncio.ensure_future(sandbox.start(force_build=False))
    await pods_of(sandbox).asked.wait()
    return start


async def cancel(start: "asyncio.Task[None]") -> None:
    start.cancel()
    await asyncio.gather(start, return_exceptions=True)


async def test_a_pod_whose_creation_is_in_flight_when_its_trial_is_flushed_is_deleted_when_it_comes(
    sandbox: KubernetesSandbox,
) -> None:
    start, pods = await begin(sandbox), pods_of(sandbox)
    await cancel(start)
    removal = asyncio.ensure_future(sandbox.destroy())
    await asyncio.sleep(0)
    assert sandbox.left
    pods.creating.set()
    await removal
    assert (pods.pods, pods.deletions, sandbox.left) == ([], 1, False)


async def test_a_deletion_that_fails_is_left_and_tried_again_until_it_is_taken(sandbox: KubernetesSandbox) -> None:
    start, pods = await begin(sandbox), pods_of(sandbox)
    pods.creating.set()
    await cancel(start)
    pods.away = True
    for _ in range(2):
        await sandbox.destroy()
        assert (sandbox.left, len(pods.pods)) == (True, 1)
    pods.away = False
    await sandbox.destroy()
    assert (sandbox.left, pods.pods) == (False, [])
    done = pods.deletions
    await sandbox.destroy()
    assert pods.deletions == done


async def test_a_sandbox_that_was_never_asked_for_is_not_deleted(sandbox: KubernetesSandbox) -> None:
    await sandbox.destroy()
    assert (pods_of(sandbox).deletions, sandbox.left) == (0, False)


async def test_a_restarted_server_deletes_the_pods_that_its_selector_finds(
    sandbox: KubernetesSandbox, tmp_path: Path
) -> None:
    start, pods = await begin(sandbox), pods_of(sandbox)
    pods.creating.set()
    await cancel(start)
    async with provided(pods, tmp_path):
        assert pods.pods == []


def test_the_selector_of_a_sweep_names_the_pod_and_the_job(tmp_path: Path) -> None:
    job = JobIdentity("research", "run", "uid")
    settings = Settings(tasks_dir=tmp_path, trials_dir=tmp_path, job=job, pod_name="run-agent-1")
    labels = KubernetesProvider(settings, SandboxConfig()).labels
    assert labels["harborrl.dev/agent-server"] == "run-agent-1"
    assert labels["harborrl.dev/job-uid"] == "uid"
    assert labels["harborrl.dev/role"] == "sandbox"
