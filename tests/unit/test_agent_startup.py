"""An API server that does not let a server start ends it with one line, whichever request it refuses."""

from pathlib import Path
from typing import Any, override

import pytest

from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.sandboxes.anchors import Anchors
from harborrl_agent_server.sandboxes.cluster import Cluster, KubeError, KubeUnreachableError
from harborrl_agent_server.sandboxes.images import SandboxConfig
from harborrl_agent_server.sandboxes.kubernetes_provider import KubernetesProvider
from harborrl_agent_server.settings import JobIdentity, Settings


class Refusing(Cluster):
    """Anchors exist already, and cannot be read."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    @override
    async def request(self, method: str, path: str, **_: Any) -> dict[str, Any]:
        if method == "POST":
            raise KubeError(409, "AlreadyExists", "it exists")
        raise self.error


@pytest.mark.parametrize("error", [KubeError(403, "Forbidden", "no get"), KubeUnreachableError("no route")])
async def test_an_anchor_that_cannot_be_read_is_one_line(error: Exception) -> None:
    anchors = Anchors(Refusing(error), "sandboxes", JobIdentity("research", "quickstart", "0123456789"), "pod", "pod")
    with pytest.raises(StartupError):
        await anchors.create()


@pytest.mark.parametrize("error", [KubeError(403, "Forbidden", "no list"), KubeUnreachableError("no route")])
async def test_pods_of_an_earlier_life_that_cannot_be_listed_are_one_line(error: Exception, tmp_path: Path) -> None:
    provider = KubernetesProvider(Settings(tasks_dir=tmp_path, trials_dir=tmp_path), SandboxConfig())
    provider._cluster = Refusing(error)
    with pytest.raises(StartupError):
        await provider._sweep("harborrl.dev/role=sandbox")
