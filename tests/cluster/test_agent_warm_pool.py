"""Pods that wait for trials, on a real cluster: taken by their labels, replaced, given up for trials, never left."""

from pathlib import Path

import pytest

from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from support.agent_http import eventually, replies
from support.agent_server import MARKS, stage
from support.agent_tasks import write_task
from support.placed_sandboxes import Place, begun, place
from support.sandbox_cluster import limit_pods

pytestmark = [pytest.mark.cluster, MARKS[1]]

WARM = {"warmPool": {"size": 1}}


async def warmed(provider: KubernetesProvider, folder: Path) -> None:
    """The pool is full for the image of a first trial, which is over."""
    first = await begun(provider, folder)
    await first.stop(delete=True)
    await eventually(lambda: provider.warmth().ready == provider.config.warm_pool.size)


async def warm_names(there: Place) -> list[str]:
    pods = await there.listed("pods")
    return [pod["metadata"]["name"] for pod in pods if "harborrl.dev/warm" in pod["metadata"]["labels"]]


async def test_a_trial_takes_a_waiting_pod_once_and_nothing_is_left(tmp_path: Path) -> None:
    async with place(tmp_path, WARM) as there:
        async with there.provided() as provider:
            await warmed(provider, tmp_path)
            waiting = await warm_names(there)
            sandbox = await begun(provider, tmp_path)
            assert [sandbox.name] == waiting
            assert (await sandbox.exec("pwd")).stdout == "/app\n"
            await eventually(lambda: provider.warmth().ready == 1)
            assert sandbox.name not in await warm_names(there)
            await sandbox.stop(delete=True)
            again = await begun(provider, tmp_path)
            assert again.name not in waiting
            await again.stop(delete=True)
            await eventually(lambda: provider.warmth().ready == 1)
        assert await there.listed("pods") == []


async def test_a_waiting_pod_that_somebody_deletes_is_replaced_and_not_handed_out(tmp_path: Path) -> None:
    async with place(tmp_path, WARM) as there, there.provided() as provider:
        await warmed(provider, tmp_path)
        (gone,) = await warm_names(there)
        await there.cluster.request("DELETE", f"{provider.pods_path}/{gone}")
        sandbox = await begun(provider, tmp_path)
        assert sandbox.name != gone
        assert (await sandbox.exec("true")).return_code == 0


async def test_a_waiting_pod_makes_room_when_the_quota_is_full(tmp_path: Path) -> None:
    async with place(tmp_path, WARM) as there:
        await limit_pods(there.cluster, there.namespace, 2)
        async with there.provided() as provider:
            await warmed(provider, tmp_path)
            held = [await begun(provider, tmp_path, memory_mb=size) for size in (32, 64)]
            pods = await there.listed("pods")
            assert {pod["metadata"]["name"] for pod in pods} == {sandbox.own_name for sandbox in held}


async def test_a_whole_trial_runs_on_a_waiting_pod(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks")
    acts = "```sh\necho hello > /app/greeting.txt\n```"
    script = replies(acts, "TASK_DONE", acts, "TASK_DONE")
    async with place(tmp_path, WARM) as there:
        provider = KubernetesProvider.from_settings(there.settings)  # the stage opens it
        async with stage(tmp_path / "tasks", script, provider=provider, budgets=there.settings.budgets) as server:
            await server.run()
            await eventually(lambda: provider.warmth().ready == 1)
            answer = await server.run()
            assert (answer["exit_status"], answer["reward"]) == ("Submitted", 1.0)
            health = await server.health()
            assert (health["warm"]["warm_starts"], health["warm"]["cold_starts"]) == (1, 1)
            metrics = (await server.client.get(f"{server.url}/metrics")).text
            assert 'harborrl_agent_sandbox_starts_total{start="warm"} 1.0' in metrics
        assert await there.listed("pods") == []
