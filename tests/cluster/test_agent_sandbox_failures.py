"""Pods that a real cluster refuses or cannot start: each says why in the cluster's words, and what to do."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.allocating import Patience
from harborrl_agent_server.sandboxes.cluster import Cluster
from support.agent_server import BUDGETS, MARKS
from support.sandbox_api import sandbox_of
from support.sandbox_cluster import own_namespace, pods, settings_for, trusting

pytestmark = [pytest.mark.cluster, MARKS[1]]


NO_SUCH_VOLUME = {
    "volumes": [{"name": "v", "configMap": {"name": "no-such-map"}}],
    "containers": [{"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
}


async def said(
    cluster: Cluster, folder: Path, config: dict[str, Any] | None = None, *, level: str = "baseline", **task: Any
) -> str:
    """What a trial is told, from a namespace of its own in which nothing is left."""
    budgets = replace(BUDGETS, environment_start_s=12)
    async with own_namespace(cluster, level) as namespace:
        provider = trusting(settings_for(namespace, folder, sandbox_config=config or {}, budgets=budgets))
        provider.patience = Patience(pull_s=6, quota_s=10)
        await provider.open()
        try:
            sandbox = sandbox_of(provider, folder, **task)
            with pytest.raises(SandboxStartError) as raised:
                await sandbox.start(force_build=False)
            await sandbox.stop(delete=True)
            assert await pods(cluster, namespace) == []
        finally:
            await provider.close()
    return str(raised.value)


@pytest.mark.parametrize(
    ("config", "task", "expected"),
    [
        pytest.param(
            {"runtimeClassName": "no-such-class"},
            {},
            ("RuntimeClassMissing", "no-such-class", "runtimeClassName"),
            id="runtime class",
        ),
        pytest.param(
            {"priorityClassName": "no-such-class"},
            {},
            ("PriorityClassMissing", "no-such-class", "priorityClassName"),
            id="priority class",
        ),
        pytest.param(
            {"images": {"pullSecrets": ["no-such-secret"]}},
            {"docker_image": "localhost:1/no/such:1"},
            ("PullSecretMissing", "no-such-secret", "images.pullSecrets"),
            id="pull secret",
        ),
        pytest.param(
            {},
            {"docker_image": "localhost:1/no/such:1"},
            ("ImagePullFailed", "localhost:1/no/such:1", "registry"),
            id="registry",
        ),
        pytest.param(
            {"podOverrides": NO_SUCH_VOLUME},
            {},
            ("VolumeNotMounted", "no-such-map", "podOverrides"),
            id="volume",
        ),
        pytest.param(
            {"nodeSelector": {"no-such-label": "x"}},
            {},
            ("Unschedulable", "node affinity/selector", "sandbox.nodeSelector"),
            id="node selector",
        ),
        pytest.param({}, {"cpus": 500}, ("Unschedulable", "Insufficient cpu", "lower the task's"), id="no room"),
        pytest.param({}, {"gpus": 3}, ("Unschedulable", "Insufficient nvidia.com/gpu", "GPUs"), id="no GPU"),
    ],
)
async def test_a_start_that_fails_says_why_and_what_to_do(
    config: dict[str, Any], task: dict[str, Any], expected: tuple[str, str, str], cluster: Cluster, tmp_path: Path
) -> None:
    reason, words, what_to_do = expected
    text = await said(cluster, tmp_path, config, **task)
    assert text.startswith(f"{reason}: "), text
    assert words in text
    assert what_to_do in text


async def test_a_namespace_whose_pod_security_is_too_strict_says_so(cluster: Cluster, tmp_path: Path) -> None:
    text = await said(cluster, tmp_path, level="restricted")
    assert text.startswith("PodSecurityRefused: ")
    assert "enforce=baseline" in text
