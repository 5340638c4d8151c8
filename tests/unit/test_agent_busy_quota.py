"""A quota that several requests change at once: the API server answers with 409, and the next request is taken."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.sandboxes.cluster import KubeError
from support.sandbox_api import SandboxApi, provided, sandbox_of

BUSY = 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified; please apply your changes'

NO_NETWORK = "harborrl-no-network"


def busy(collection: str, times: int) -> Callable[[str, str], None]:
    left = times

    def refuse(method: str, path: str) -> None:
        nonlocal left
        if method == "POST" and path.endswith(f"/{collection}") and left:
            left -= 1
            raise KubeError(409, "Conflict", BUSY)

    return refuse


async def test_a_trial_gets_its_pod_when_the_quota_is_written_to_by_others(tmp_path: Path) -> None:
    api = SandboxApi()
    async with provided(api, tmp_path) as provider:
        api.refuse = busy("pods", 1)
        sandbox = sandbox_of(provider, tmp_path)
        await sandbox.start(force_build=False)
        assert api.names("pods") == [sandbox.name]


@pytest.mark.parametrize("collection", ["configmaps", "networkpolicies"])
async def test_a_server_begins_when_the_quota_is_written_to_by_others(tmp_path: Path, collection: str) -> None:
    api = SandboxApi()
    api.refuse = busy(collection, 2)
    async with provided(api, tmp_path):
        assert api.names("configmaps") == ["server-server-1"]
        assert api.names("networkpolicies") == [NO_NETWORK]


async def test_an_anchor_that_meets_others_again_and_again_is_told(tmp_path: Path) -> None:
    api = SandboxApi()
    api.refuse = busy("configmaps", 100)
    with pytest.raises(StartupError, match="has been modified"):
        async with provided(api, tmp_path):
            pass
