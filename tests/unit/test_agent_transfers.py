"""Downloads from a sandbox whose `tar` has something to say."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harborrl_agent_server.errors import SandboxTransportError, SandboxUnusableError
from harborrl_agent_server.sandboxes.base import ShellSandbox
from harborrl_agent_server.sandboxes.carrying import TRANSFER_SECONDS
from harborrl_agent_server.sandboxes.entered import KILL_SECONDS
from harborrl_agent_server.sandboxes.local import LocalProvider, LocalSandbox
from support.agent_server import MARKS
from support.sandbox_suite import started

pytestmark = MARKS

CHANGED = "tar: ./agent/log: file changed as we read it"


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[ShellSandbox]:
    provider = LocalProvider()
    async with started(provider, tmp_path) as sandbox:
        await sandbox.exec("mkdir /app/out; echo kept >/app/out/log")
        yield sandbox
    await provider.close()


async def complain(sandbox: ShellSandbox, said: str, code: int) -> None:
    """Its `tar` does its work, and then says this and ends so."""
    await sandbox.exec(
        "t=$(command -v tar); cp $t /bin/real-tar; rm $t; "
        f'printf \'#!/bin/sh\\nreal-tar "$@"\\nprintf "%%s\\\\n" "{said}" >&2\\nexit {code}\\n\' >$t; chmod +x $t'
    )


async def stand_still(sandbox: ShellSandbox, what: str) -> None:
    """Its `tar` does something else, without an end."""
    await sandbox.exec(f"t=$(command -v tar); rm $t; printf '#!/bin/sh\\n{what}\\n' >$t; chmod +x $t")
    sandbox.transfer_s = 0.5


async def test_a_sandbox_whose_tar_was_made_to_hang_has_itself_to_blame(sandbox: ShellSandbox, tmp_path: Path) -> None:
    """By a lost sandbox a policy could have its trial thrown away."""
    await stand_still(sandbox, "exec sleep 100")
    with pytest.raises(SandboxUnusableError, match="runs other commands"):
        await sandbox.download_dir("/app/out", tmp_path / "back")
    await stand_still(sandbox, "cat >/dev/null; exec sleep 100")
    (tmp_path / "tests").mkdir()
    with pytest.raises(SandboxUnusableError, match="runs other commands"):
        await sandbox.upload_dir(tmp_path / "tests", "/tests")
    assert isinstance(sandbox.scope.fault, SandboxUnusableError)


STOPS_UP = "head -c 500000 >/dev/null; exec sleep 1000"
READS_LATE = "sleep 3; cat >/dev/null; exec sleep 1000"
STOPS_DOWN = "head -c 500000 /dev/zero; exec sleep 1000"
SPEAKS_LATE = "sleep 3; echo x; exec sleep 1000"


@pytest.mark.parametrize("tar", [STOPS_UP, READS_LATE])
async def test_a_tar_that_stands_still_in_a_large_upload_has_itself_to_blame(
    sandbox: ShellSandbox, tmp_path: Path, tar: str
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "large").write_bytes(bytes(4 * 1024 * 1024))
    await stand_still(sandbox, tar)
    sandbox.transfer_s = 4.0
    with pytest.raises(SandboxUnusableError, match="runs other commands"):
        await sandbox.upload_dir(tmp_path / "tests", "/tests")


@pytest.mark.parametrize("tar", [STOPS_DOWN, SPEAKS_LATE])
async def test_a_tar_that_stands_still_in_a_download_has_itself_to_blame(
    sandbox: ShellSandbox, tmp_path: Path, tar: str
) -> None:
    await stand_still(sandbox, tar)
    sandbox.transfer_s = 4.0
    with pytest.raises(SandboxUnusableError, match="runs other commands"):
        await sandbox.download_dir("/app/out", tmp_path / "back")


@pytest.mark.parametrize("tar", ["exec sleep 1000", STOPS_DOWN], ids=["at once", "in the midst"])
async def test_a_tar_that_stands_still_is_not_waited_for_minutes_with_each_folder(
    sandbox: ShellSandbox, tar: str
) -> None:
    assert isinstance(sandbox, LocalSandbox)
    await sandbox.exec("mkdir -p /logs/agent /logs/artifacts")
    await stand_still(sandbox, tar)
    sandbox.transfer_s, sandbox.fetch_s = TRANSFER_SECONDS, 1.0
    sandbox.agent_ended(["/logs/agent", "/logs/artifacts"])
    assert await sandbox.is_dir("/logs/agent", user="root")
    assert sandbox.transfer_s == KILL_SECONDS


HANGS = "cat >/dev/null; exec sleep 1000"

FAILS_AND_THEN_HANGS = f"[ ! -e /tmp/first ] || {{ {HANGS}; }}; touch /tmp/first; cat >/dev/null; exit 2"
"""What fails together goes singly."""


@pytest.mark.parametrize("tar", [HANGS, FAILS_AND_THEN_HANGS], ids=["together", "singly"])
async def test_what_goes_up_before_the_tests_waits_as_long_for_a_tar_as_this_sandbox_is_worth(
    sandbox: ShellSandbox, tmp_path: Path, tar: str
) -> None:
    """A tar that said nothing before has its short time: five minutes more would be the verifier's."""
    assert isinstance(sandbox, LocalSandbox)
    await stand_still(sandbox, tar)
    (tmp_path / "tests").mkdir()
    sandbox.agent_ended([])
    await sandbox.upload_dir(tmp_path / "tests", "/tests")
    async with asyncio.timeout(60):
        with pytest.raises(SandboxUnusableError, match="runs other commands"):
            await sandbox.settle()


async def test_a_command_that_carries_nothing_says_nothing_about_tar(sandbox: ShellSandbox) -> None:
    sandbox.transfer_s = 0.1
    with pytest.raises(SandboxTransportError):
        await sandbox._plain(["/bin/sh", "-c", "exec sleep 1000"], limit_s=0.5)


async def test_a_transfer_that_is_slow_is_the_ways_to_blame(sandbox: ShellSandbox, tmp_path: Path) -> None:
    await stand_still(sandbox, "while :; do echo x; sleep 0.1; done")
    sandbox.transfer_s = 6.0  # on a busy machine its first word takes a while
    with pytest.raises(SandboxTransportError):
        await sandbox.download_dir("/app/out", tmp_path / "back")


@pytest.mark.parametrize(
    "said",
    [CHANGED, "tar: ./x: File removed before we read it", "tar: ./x: File shrank by 7 bytes; padding with zeros"],
)
async def test_a_file_that_is_written_to_meanwhile_does_not_cost_the_download(
    sandbox: ShellSandbox, tmp_path: Path, said: str
) -> None:
    await complain(sandbox, said, 1)
    await sandbox.download_dir("/app/out", tmp_path / "back")
    assert (tmp_path / "back" / "log").read_text() == "kept\n"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        pytest.param(CHANGED, 2, id="a fatal end"),
        pytest.param("tar: ./x: Cannot open: Permission denied", 1, id="another complaint"),
        pytest.param(f"{CHANGED}\ntar: ./y: Cannot stat: Input/output error", 1, id="more than that complaint"),
        pytest.param("", 1, id="no word"),
    ],
)
async def test_whatever_else_tar_complains_of_is_an_error(
    sandbox: ShellSandbox, tmp_path: Path, said: str, code: int
) -> None:
    await complain(sandbox, said, code)
    with pytest.raises(RuntimeError, match=f"exit code {code}"):
        await sandbox.download_dir("/app/out", tmp_path / "back")
