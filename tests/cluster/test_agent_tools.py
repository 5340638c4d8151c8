"""The tools bundle on a real cluster: agents whose programs the task's image lacks, in tasks without network.

The sandbox image holds a small static shell and nothing else. Needs the bundle's image on the node:
`python -m images build agent-tools && python -m devcluster load localhost/harborrl/agent-tools:dev`.
"""

import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, override
from uuid import uuid4

import pytest

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from harborrl_agent_server.sandboxes.tools_volume import ToolsVolume, with_copy
from harborrl_agent_server.settings import Settings
from support.agent_http import completion
from support.agent_server import BUDGETS, MARKS, stage
from support.agent_tasks import write_task
from support.sandbox_cluster import IMAGE
from support.sandbox_suite import started

TOOLS = os.environ.get("HARBORRL_TEST_TOOLS_IMAGE", "localhost/harborrl/agent-tools:dev")
NODE = os.environ.get("HARBORRL_TEST_NODE_ADDRESS", "10.157.0.1")
"""Of this machine, as pods reach it."""

pytestmark = [
    pytest.mark.cluster,
    MARKS[1],
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the model library that Harbor imports
]


@pytest.fixture
def settings(namespace: str, tmp_path: Path) -> Settings:
    return Settings(
        tasks_dir=tmp_path / "tasks",
        trials_dir=tmp_path / "trials",
        sandbox_namespace=namespace,
        sandbox_image=IMAGE,
        sandbox_config={"tools": {"image": TOOLS}},
        gateway_host=NODE,
        pod_name=f"agent-{uuid4().hex[:6]}",
        budgets=replace(BUDGETS, environment_start_s=120),
    )


@pytest.fixture
async def provider(settings: Settings) -> AsyncIterator[KubernetesProvider]:
    provider = KubernetesProvider.from_settings(settings)
    await provider.open()
    try:
        await provider.attempt(bare_pod(provider, "there", "Never"))
        yield provider
    except SandboxStartError as error:
        pytest.skip(f"{TOOLS} is not on the node (images build agent-tools, devcluster load): {error}")
    finally:
        await provider.close()


def bare_pod(provider: KubernetesProvider, name: str, policy: str) -> dict[str, Any]:
    command = ["/libexec/busybox", "sleep", "60"]
    container = {"name": "main", "image": TOOLS, "imagePullPolicy": policy, "command": command}
    metadata = {"name": name, "labels": provider.labels, "ownerReferences": [provider.anchor.owner()]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def terminal(messages: list[dict[str, Any]], number: int) -> str:
    seen = any("\nwritten" in str(message["content"]) for message in messages)
    keystrokes = ["echo hello > /app/greeting.txt; echo wri''tten\n"] if number == 0 else [] if seen else [""]
    commands = [{"keystrokes": text, "duration": 0.3} for text in keystrokes]
    return json.dumps({"analysis": "a", "plan": "p", "commands": commands, "task_complete": seen})


def mini(_: list[dict[str, Any]], number: int) -> Any:
    command = ["echo hello > /app/greeting.txt", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"][min(number, 1)]
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    call = {"id": f"call-{number}", "type": "function", "function": function}
    return completion("I act.", finish_reason="tool_calls", tool_calls=[call])


@pytest.mark.parametrize(
    ("agent", "script"),
    [
        pytest.param("terminus-2", terminal, id="terminus-2 gets tmux, bash and its terminals"),
        pytest.param("mini-swe-agent", mini, id="mini-swe-agent gets its Python"),
    ],
)
async def test_an_agent_solves_a_task_without_network_in_an_image_that_has_nothing(
    provider: KubernetesProvider, settings: Settings, agent: str, script: Any
) -> None:
    write_task(settings.tasks_dir, environment='workdir = "/app"\nnetwork_mode = "no-network"')
    await provider.close()  # the stage opens it
    own: dict[str, Any] = {"sandbox_config": settings.sandbox_config, "gateway_host": NODE, "sandbox_image": IMAGE}
    own |= {"budgets": settings.budgets, "allowed_agents": (agent,)}
    async with stage(settings.tasks_dir, script, provider=provider, **own) as server:
        answer = await server.run(agent_name=agent)
    assert (answer["reward"], answer["exit_status"]) == (1.0, "Submitted"), answer
    await provider.open()


async def test_the_bundle_cannot_be_changed_and_hides_nothing_of_the_image(
    provider: KubernetesProvider, tmp_path: Path
) -> None:
    async with started(provider, tmp_path / "plain") as sandbox:
        assert (await sandbox.exec("test -e /opt/harborrl-tools")).return_code == 1
    provider.tools = Copied(TOOLS)
    async with started(provider, tmp_path / "with") as sandbox:
        assert (await sandbox.exec("echo x > /opt/harborrl-tools/bin/tmux")).return_code != 0
        told = await sandbox.exec("/opt/harborrl-tools/bin/bash -c 'echo $BASH_VERSION; echo $PATH'")
        assert (told.stdout or "").startswith("5.")
        assert "harborrl" not in (told.stdout or "")


class Copied(ToolsVolume):
    """Gives every pod the bundle, whichever agent asks."""

    @override
    def mounted(self, manifest: dict[str, Any], *_: Any) -> dict[str, Any]:
        return with_copy(manifest, TOOLS, "terminal")


async def test_a_try_of_the_nodes_ends_and_leaves_no_pod(provider: KubernetesProvider) -> None:
    """Whatever this node can do."""
    pod = bare_pod(provider, "sb-first", "IfNotPresent")
    provider.tools.mounted(pod, "all", provider.attempt)
    assert provider.tools.trying is not None
    await provider.tools.trying
    listed = await provider.cluster.request("GET", provider.pods_path)
    assert [item for item in listed["items"] if not item["metadata"].get("deletionTimestamp")] == []
