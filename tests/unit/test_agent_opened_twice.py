"""A provider of sandboxes is opened once; again only after it was closed, or could not be opened."""

from pathlib import Path

import pytest

from harborrl_agent_server.sandboxes.hosted_provider import HostedProvider
from harborrl_agent_server.sandboxes.local import LocalProvider
from harborrl_agent_server.sandboxes.once import Once
from harborrl_agent_server.scope import SandboxProvider
from harborrl_agent_server.settings import Settings
from support.agent_server import MARKS
from support.sandbox_api import SandboxApi, provided

pytestmark = MARKS


async def refuses_a_second_opening(provider: SandboxProvider) -> None:
    await provider.open()
    with pytest.raises(RuntimeError, match="open already"):
        await provider.open()
    await provider.close()
    await provider.open()
    await provider.close()


async def test_local_sandboxes_are_opened_once() -> None:
    await refuses_a_second_opening(LocalProvider())


async def test_a_foreign_environment_is_opened_once(tmp_path: Path) -> None:
    settings = Settings(
        tmp_path, tmp_path, sandbox="support.foreign_sandboxes:Foreign", sandbox_config={"flavour": "plain"}
    )
    await refuses_a_second_opening(HostedProvider.from_settings(settings))


async def test_pods_are_opened_once_and_the_first_opening_stays(tmp_path: Path) -> None:
    async with provided(SandboxApi(), tmp_path) as provider:
        before = provider.cluster
        with pytest.raises(RuntimeError, match="open already"):
            await provider.open()
        with pytest.raises(RuntimeError, match="open already"):
            await provider.start(before)
        assert provider.cluster is before


def test_what_could_not_be_opened_may_be_opened_again() -> None:
    once = Once()

    def fails() -> None:
        with once.opening():
            raise OSError("no such place")

    for _ in range(2):
        with pytest.raises(OSError, match="no such place"):
            fails()
    with once.opening():
        pass
    with pytest.raises(RuntimeError):
        once.refuse_while_open()
