"""The pod sandbox on a real cluster: the suite of all sandboxes, and what only pods can do.

Needs an image with /bin/sh on the node (`HARBORRL_TEST_SANDBOX_IMAGE`); makes its own namespaces.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from harbor.models.task.config import NetworkPolicy

from harborrl_agent_server.errors import SandboxLostError, SandboxStartError
from harborrl_agent_server.sandboxes.allocating import Patience
from harborrl_agent_server.sandboxes.base import ShellSandbox
from harborrl_agent_server.sandboxes.cluster import Cluster, KubeError
from harborrl_agent_server.sandboxes.kubernetes import KubernetesSandbox
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from harborrl_agent_server.settings import JobIdentity, Settings
from support.agent_http import replies
from support.agent_server import MARKS, stage
from support.agent_tasks import write_task
from support.sandbox_cluster import IMAGE, limit_pods, pods, settings_for, trusting
from support.sandbox_suite import SandboxSuite, built, started

pytestmark = [pytest.mark.cluster, MARKS[1]]


@pytest.fixture
def settings(namespace: str, tmp_path: Path) -> Settings:
    return settings_for(namespace, tmp_path)


@pytest.fixture
async def provider(settings: Settings) -> AsyncIterator[KubernetesProvider]:
    provider = trusting(settings)
    await provider.open()
    yield provider
    await provider.close()


@pytest.fixture
async def sandbox(provider: KubernetesProvider, tmp_path: Path) -> AsyncIterator[ShellSandbox]:
    async with started(provider, tmp_path / "sandbox") as sandbox:
        yield sandbox


class TestPodSandbox(SandboxSuite):
    pass


async def test_a_pod_carries_no_token_and_is_owned_by_the_servers_anchor(
    cluster: Cluster, provider: KubernetesProvider, sandbox: ShellSandbox
) -> None:
    pod = (await pods(cluster, provider.namespace))[0]
    assert pod["metadata"]["ownerReferences"][0]["name"] == provider.anchor.name
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["metadata"]["labels"]["harborrl.dev/role"] == "sandbox"
    assert (await sandbox.exec("test -e /var/run/secrets/kubernetes.io")).return_code == 1


async def test_a_pod_deleted_by_others_is_a_lost_sandbox(
    cluster: Cluster, sandbox: ShellSandbox, namespace: str
) -> None:
    assert isinstance(sandbox, KubernetesSandbox)
    command = asyncio.ensure_future(sandbox.exec("sleep 600"))
    await cluster.request(
        "DELETE", f"/api/v1/namespaces/{namespace}/pods/{sandbox.name}", body={"gracePeriodSeconds": 1}
    )
    with pytest.raises(SandboxLostError):
        async with asyncio.timeout(20):
            await command


async def test_an_image_name_that_cannot_be_is_refused_at_once(provider: KubernetesProvider, tmp_path: Path) -> None:
    sandbox = built(provider, tmp_path / "bad", NetworkPolicy(), docker_image="UPPER//x")
    with pytest.raises(SandboxStartError, match="InvalidImageName"):
        async with asyncio.timeout(20):
            await sandbox.start(force_build=False)
    await sandbox.stop(delete=True)


async def test_a_full_quota_names_itself(cluster: Cluster, provider: KubernetesProvider, tmp_path: Path) -> None:
    await limit_pods(cluster, provider.namespace, 0)
    provider.patience = Patience(quota_s=1)
    sandbox = built(provider, tmp_path / "quota", NetworkPolicy())
    with pytest.raises(SandboxStartError, match=r"QuotaExceeded.*raise the quota"):
        await sandbox.start(force_build=False)
    await sandbox.stop(delete=True)


async def test_a_trial_cancelled_while_its_pod_is_being_created_leaves_none(
    cluster: Cluster, provider: KubernetesProvider, tmp_path: Path
) -> None:
    sandbox = built(provider, tmp_path / "early", NetworkPolicy())
    start = asyncio.ensure_future(sandbox.start(force_build=False))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    start.cancel()
    await asyncio.gather(start, return_exceptions=True)
    await sandbox.stop(delete=True)
    assert await pods(cluster, provider.namespace) == []


async def test_a_server_that_restarts_sweeps_what_it_left(
    cluster: Cluster, provider: KubernetesProvider, settings: Settings, tmp_path: Path
) -> None:
    left = built(provider, tmp_path / "left", NetworkPolicy())
    await left.start(force_build=False)
    foreign = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign"}}
    foreign["spec"] = {"containers": [{"name": "c", "image": IMAGE, "command": ["sleep", "600"]}]}
    await cluster.request("POST", f"/api/v1/namespaces/{settings.sandbox_namespace}/pods", body=foreign)
    again = trusting(settings)
    await again.open()
    names = [pod["metadata"]["name"] for pod in await pods(cluster, settings.sandbox_namespace)]
    assert names == ["foreign"]
    await again.close()


async def test_a_whole_trial_runs_on_a_pod_and_leaves_none(
    cluster: Cluster, settings: Settings, tmp_path: Path
) -> None:
    provider = trusting(settings)  # the stage opens it
    tasks = tmp_path / "tasks"
    write_task(tasks)
    script = replies("```sh\necho hello > /app/greeting.txt\n```", "TASK_DONE")
    async with stage(tasks, script, provider=provider, budgets=settings.budgets) as server:
        answer = await server.run()
        assert await pods(cluster, settings.sandbox_namespace) == []
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 1.0)


async def test_an_agent_that_empties_its_sandbox_is_graded_zero_and_not_thrown_away(
    settings: Settings, tmp_path: Path
) -> None:
    provider = trusting(settings)  # the stage opens it
    tasks = tmp_path / "tasks"
    write_task(tasks)
    script = replies("```sh\nrm -rf /bin\n```", "```sh\necho hello > /app/greeting.txt\n```", "TASK_DONE")
    async with stage(tasks, script, provider=provider, budgets=settings.budgets) as server:
        answer = await server.run()
    assert (answer["exit_status"], answer["eval_report"]) == ("AgentError", {"reward": 0.0})
    assert "could not run the command" in answer["message"]


async def test_an_agent_that_ends_its_sandbox_is_graded_zero_and_not_thrown_away(
    settings: Settings, tmp_path: Path
) -> None:
    provider = trusting(settings)  # the stage opens it
    tasks = tmp_path / "tasks"
    write_task(tasks)
    script = replies("```sh\nkill 1; sleep 30\n```", "TASK_DONE")
    async with stage(tasks, script, provider=provider, budgets=settings.budgets) as server:
        answer = await server.run()
    assert (answer["exit_status"], answer["eval_report"]) == ("AgentError", {"reward": 0.0})
    assert "a process of its own ended it" in answer["message"]


async def test_a_server_whose_job_is_gone_removes_the_jobs_anchor(cluster: Cluster, settings: Settings) -> None:
    job = JobIdentity("nowhere", "no-such-job", uuid4().hex)
    provider = trusting(replace(settings, job=job))
    await provider.open()
    path = f"/api/v1/namespaces/{settings.sandbox_namespace}/configmaps/nowhere-no-such-job-{job.uid[:8]}"
    await cluster.request("GET", path)
    await provider.close()
    with pytest.raises(KubeError, match="404"):
        await cluster.request("GET", path)
