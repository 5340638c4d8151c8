"""A running agent server over the local sandbox, driven through its HTTP routes."""

import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, override

import httpx
import pytest
from harbor.models.trial.config import EnvironmentConfig

from harborrl_agent_server.app import create_app
from harborrl_agent_server.peers import Resolve
from harborrl_agent_server.runs import Runs
from harborrl_agent_server.sandboxes.local import LocalProvider
from harborrl_agent_server.scope import SandboxProvider
from harborrl_agent_server.settings import Budgets, Settings
from support.agent_http import Script, SessionServer, serving

MARKS = [
    pytest.mark.namespaces,
    # Harbor warns of its own use of it
    pytest.mark.filterwarnings("ignore:Task.checksum will be deprecated:DeprecationWarning"),
]

BUDGETS = Budgets(environment_start_s=60, agent_setup_s=60, agent_timeout_s=120, verifier_s=60, cleanup_s=30)
"""For a machine that is busy with other things; a test about a budget shortens that one."""

WITHOUT_GATEWAY = ("bash", "terminus-2", "nop")
"""The agents that need none: to close one takes uvicorn tenths of a second. Tests of the others ask for AGENTS."""


class CustomProvider(LocalProvider):
    """Local sandboxes of another class."""

    def __init__(self, import_path: str) -> None:
        self.import_path = import_path

    @override
    def environment(self) -> EnvironmentConfig:
        return EnvironmentConfig(import_path=self.import_path)


@dataclass
class Stage:
    """What a test talks to."""

    url: str
    session_url: str
    session: SessionServer
    runs: Runs
    settings: Settings
    client: httpx.AsyncClient = field(repr=False)
    sessions: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False)

    def body(self, **changes: Any) -> dict[str, Any]:
        """A request for a trial in a session of its own."""
        return {
            "instance_id": "write-greeting",
            "agent_name": "bash",
            "base_url": f"{self.session_url}/sessions/s{next(self.sessions)}/v1",
            "model": "openai/model",
            "sampling_params": {"temperature": 0.8, "max_tokens": 64},
            "session_server_instance_id": "instance-a",
            **changes,
        }

    async def run(self, **changes: Any) -> dict[str, Any]:
        answer = await self.client.post(f"{self.url}/run", json=self.body(**changes))
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    async def health(self) -> dict[str, Any]:
        document: dict[str, Any] = (await self.client.get(f"{self.url}/health")).json()
        return document


@contextlib.asynccontextmanager
async def stage(
    tasks: Path,
    script: Script,
    *,
    provider: SandboxProvider | None = None,
    budgets: Budgets = BUDGETS,
    servers: Resolve | None = None,
    **changes: Any,
) -> AsyncIterator[Stage]:
    settings = replace(
        Settings(
            tasks_dir=tasks,
            trials_dir=tasks.parent / "trials",
            sandbox="local",
            budgets=budgets,
            grace_s=10,
            allow_oracle=True,
            allowed_agents=WITHOUT_GATEWAY,
        ),
        **changes,
    )
    provider = provider or LocalProvider()
    await provider.open()
    session = SessionServer(script)
    app = create_app(settings, provider, servers)
    try:
        async with (
            serving(session.app) as session_url,
            serving(app) as url,
            httpx.AsyncClient(timeout=BUDGETS.total()) as client,
        ):
            yield Stage(url, session_url, session, app.state.runs, settings, client)
    finally:
        await provider.close()
