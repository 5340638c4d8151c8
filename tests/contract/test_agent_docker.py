"""Docker sandboxes on a real daemon: the suite of all sandboxes, and what is their own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harborrl_agent_server.sandboxes.base import ShellSandbox
from support.docker import docker, obstacle, provider
from support.sandbox_suite import SandboxSuite, started

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "a daemon is there")


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[ShellSandbox]:
    async with started(provider(tmp_path), tmp_path) as sandbox:
        yield sandbox


class TestDockerSandbox(SandboxSuite):
    pass
