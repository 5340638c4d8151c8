"""Trials on claims of agent-sandbox, with its real controller (`devcluster up --with agent-sandbox`)."""

from pathlib import Path
from typing import Any

import pytest

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes import claims, commands
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from support.agent_http import replies
from support.agent_server import MARKS, stage
from support.agent_tasks import write_task
from support.placed_sandboxes import Place, begun, place
from support.sandbox_cluster import IMAGE

pytestmark = [pytest.mark.cluster, pytest.mark.agent_sandbox, MARKS[1]]

EXTENSIONS, CORE = f"apis/{claims.EXTENSIONS}", f"apis/{claims.CORE}"


def config(size: int = 0) -> dict[str, Any]:
    return {"allocator": "agent-sandbox", "claims": {"template": "shell"}, "warmPool": {"size": size}}


async def with_template(there: Place, image: str = IMAGE) -> None:
    container = {"name": "shell", "image": image, "command": ["/bin/sh", "-c", commands.IDLE]}
    template = {
        "apiVersion": claims.EXTENSIONS,
        "kind": "SandboxTemplate",
        "metadata": {"name": "shell"},
        "spec": {
            "podTemplate": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}},
            "networkPolicyManagement": "Unmanaged",
        },
    }
    await there.create("sandboxtemplates", template, EXTENSIONS)


async def until_none(there: Place) -> None:
    """Of claims and sandboxes; pods go with them, by the garbage collector."""
    while await there.listed("sandboxclaims", EXTENSIONS) or await there.listed("sandboxes", CORE):
        pass


async def test_a_claim_gets_its_trial_a_pod_and_takes_it_along_when_it_goes(tmp_path: Path) -> None:
    async with place(tmp_path, config()) as there:
        await with_template(there)
        async with there.provided() as provider:
            sandbox = await begun(provider, tmp_path)
            assert (await sandbox.exec("pwd")).stdout == "/app\n"
            pod = next(pod for pod in await there.listed("pods") if pod["metadata"]["name"] == sandbox.name)
            assert pod["metadata"]["labels"]["harborrl.dev/trial"] == sandbox.scope.run_id
            assert pod["spec"]["automountServiceAccountToken"] is False
            assert provider.warmth().cold_starts == 1
            await sandbox.stop(delete=True)
            await until_none(there)


async def test_a_claim_takes_a_ready_sandbox_of_the_pool(tmp_path: Path) -> None:
    async with place(tmp_path, config(size=1)) as there:
        await with_template(there)
        async with there.provided() as provider:
            pool: list[dict[str, Any]] = []
            while not (pool and pool[0].get("status", {}).get("readyReplicas")):
                pool = await there.listed("sandboxwarmpools", EXTENSIONS)
            sandbox = await begun(provider, tmp_path)
            assert provider.warmth().warm_starts == 1
            assert (await sandbox.exec("echo here")).stdout == "here\n"
            labels = (await provider.cluster.request("GET", f"{provider.pods_path}/{sandbox.name}"))["metadata"][
                "labels"
            ]
            assert labels["harborrl.dev/trial"] == sandbox.scope.run_id


async def test_a_task_that_its_template_does_not_fit_is_refused(tmp_path: Path) -> None:
    async with place(tmp_path, config()) as there:
        await with_template(there, image="localhost/devcluster/other:1")
        async with there.provided() as provider:
            with pytest.raises(SandboxStartError, match=r"TemplateDisagrees.*image is localhost/devcluster/other:1"):
                await begun(provider, tmp_path)
            assert await there.listed("sandboxclaims", EXTENSIONS) == []


async def test_a_whole_trial_runs_on_a_claim_and_leaves_none(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks")
    script = replies("```sh\necho hello > /app/greeting.txt\n```", "TASK_DONE")
    async with place(tmp_path, config()) as there:
        await with_template(there)
        provider = KubernetesProvider.from_settings(there.settings)  # the stage opens it
        async with stage(tmp_path / "tasks", script, provider=provider, budgets=there.settings.budgets) as server:
            answer = await server.run()
            await until_none(there)
        assert (answer["exit_status"], answer["reward"]) == ("Submitted", 1.0)
