"""What every sandbox must do, as one suite; a test file per kind gives it the `sandbox` fixture."""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from harbor.environments.factory import EnvironmentFactory
from harbor.models.task.config import EnvironmentConfig, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

from harborrl_agent_server.sandboxes.base import ShellSandbox
from harborrl_agent_server.sandboxes.entered import OUTPUT_LIMIT
from harborrl_agent_server.scope import CURRENT, SandboxProvider, TrialScope
from harborrl_agent_server.spending import Spending
from support.agent_tasks import script


def built(
    provider: SandboxProvider,
    folder: Path,
    network: NetworkPolicy,
    later: Sequence[NetworkPolicy] = (),
    **task: Any,
) -> ShellSandbox:
    """A sandbox as Harbor would make it, not started. `later`: networks of its phases."""
    scope = TrialScope(run_id=uuid4().hex[:12], provider=provider)
    settings = getattr(provider, "settings", None)
    if settings is not None:
        scope.spending = Spending(settings.budgets)
    CURRENT.set(scope)
    (folder / "task" / "environment").mkdir(parents=True, exist_ok=True)
    sandbox = EnvironmentFactory.create_environment_from_config(
        config=provider.environment(),
        environment_dir=folder / "task" / "environment",
        environment_name="suite",
        session_id=f"suite-{uuid4().hex[:8]}__env",
        trial_paths=TrialPaths(trial_dir=folder / "trial"),
        task_env_config=EnvironmentConfig(workdir="/app", **task),
        network_policy=network,
        phase_network_policies=later,
    )
    assert isinstance(sandbox, ShellSandbox)
    return sandbox


@contextlib.asynccontextmanager
async def started(
    provider: SandboxProvider, folder: Path, network: NetworkPolicy | None = None, **task: Any
) -> AsyncIterator[ShellSandbox]:
    sandbox = built(provider, folder, network or NetworkPolicy(), **task)
    try:
        await sandbox.start(force_build=False)
        yield sandbox
    finally:
        await sandbox.stop(delete=True)


class SandboxSuite:
    """Behaviour that agents, verifiers and Harbor rely on."""

    async def test_process_1_starts_no_program_that_the_agent_may_have_replaced(self, sandbox: ShellSandbox) -> None:
        await sandbox.exec(
            "p=$(readlink -f $(command -v sleep)); printf '#!/bin/sh\\necho x >/started\\n' >$p.new; "
            "chmod 755 $p.new; mv $p.new $p"
        )
        await sandbox.quiesce()
        for _ in range(20):
            assert (await sandbox.exec("[ -e /started ]")).return_code == 1

    async def test_exit_code_and_both_outputs_arrive(self, sandbox: ShellSandbox) -> None:
        result = await sandbox.exec("echo out; echo err >&2; exit 7")
        assert (result.return_code, result.stdout, result.stderr) == (7, "out\n", "err\n")

    async def test_a_command_starts_in_the_workdir_with_the_given_environment(self, sandbox: ShellSandbox) -> None:
        result = await sandbox.exec("pwd; echo $NAME", env={"NAME": "it's $HOME"})
        assert result.stdout == "/app\nit's $HOME\n"

    async def test_a_command_reads_no_input_and_does_not_wait_for_any(self, sandbox: ShellSandbox) -> None:
        assert (await sandbox.exec("cat; echo end", timeout_sec=60)).stdout == "end\n"

    async def test_a_long_command_is_carried_whole(self, sandbox: ShellSandbox) -> None:
        text = "x" * 300_000
        result = await sandbox.exec(f"x={text}; echo ${{#x}}")
        assert result.stdout == "300000\n", result

    async def test_length_is_counted_in_bytes(self, sandbox: ShellSandbox) -> None:
        result = await sandbox.exec(f": {'漢' * 50_000}; echo arrived")
        assert (result.return_code, result.stdout) == (0, "arrived\n")

    async def test_a_nul_in_a_command_is_the_commands_trouble_alone(self, sandbox: ShellSandbox) -> None:
        await sandbox.exec("echo a\0b")
        assert sandbox.scope.fault is None
        assert (await sandbox.exec("echo alive")).stdout == "alive\n"

    async def test_bytes_that_are_no_text_do_not_break_a_command(self, sandbox: ShellSandbox) -> None:
        assert (await sandbox.exec(r"printf '\377\376a'")).stdout == "\ufffd\ufffda"

    async def test_a_flood_of_output_is_cut_in_the_middle(self, sandbox: ShellSandbox) -> None:
        result = await sandbox.exec("echo begin; head -c 12000000 /dev/zero | tr '\\0' a; echo; echo finish")
        text = result.stdout or ""
        assert text.startswith("begin\n")
        assert text.endswith("finish\n")
        assert len(text) < OUTPUT_LIMIT + 100
        assert "bytes omitted" in text

    async def test_more_variables_than_a_command_line_holds_come_with_it(self, sandbox: ShellSandbox) -> None:
        many = {f"V{number}": "x" * 20_000 for number in range(20)}
        result = await sandbox.exec('echo "${#V0} ${#V19}"', env=many)
        assert (result.return_code, result.stdout) == (0, "20000 20000\n")

    async def test_a_command_that_takes_too_long_is_gone(self, sandbox: ShellSandbox) -> None:
        result = await sandbox.exec("echo begun; sleep 7654 & sleep 7655", timeout_sec=3)
        assert (result.return_code, result.stdout) == (124, "begun\n")
        assert await self.running(sandbox, "sleep 765") == 0

    async def test_a_cancelled_command_is_gone(self, sandbox: ShellSandbox) -> None:
        command = asyncio.ensure_future(sandbox.exec("touch /tmp/begun; sleep 7656"))
        async with asyncio.timeout(20):
            while (await sandbox.exec("test -e /tmp/begun")).return_code != 0:
                pass
        command.cancel()
        with pytest.raises(asyncio.CancelledError):
            await command
        assert await self.running(sandbox, "sleep 765") == 0

    async def test_quiescence_ends_daemons_and_clears_planted_tests(self, sandbox: ShellSandbox) -> None:
        await sandbox.exec("mkdir -p /tests; echo bad >/tests/test.sh; (setsid sleep 7657 >/dev/null 2>&1 &)")
        await self.quiesce(sandbox)
        assert await self.running(sandbox, "sleep 765") == 0
        assert (await sandbox.exec("test -e /tests")).return_code == 1

    async def test_behind_the_agents_phase_its_logs_come_out_and_the_tests_go_in_and_run(
        self, sandbox: ShellSandbox, tmp_path: Path
    ) -> None:
        await sandbox.exec("mkdir -p /logs/agent /logs/artifacts /logs/verifier /tests; echo bad >/tests/planted")
        await sandbox.exec("echo 1 >/logs/verifier/reward.txt; cd /logs; echo a >agent/a; echo b >artifacts/b")
        await sandbox.exec("(setsid sleep 7658 >/dev/null 2>&1 &)")
        self.agent_ended(sandbox, ["/logs/agent", "/logs/artifacts"])
        for name in ("agent", "artifacts"):
            assert await sandbox.is_dir(f"/logs/{name}", user="root")
            await sandbox.download_dir(f"/logs/{name}", tmp_path / name)
        (tmp_path / "agent" / "ours").write_text("ours\n")
        await sandbox.upload_dir(tmp_path / "agent", "/logs/agent")
        await self.quiesce(sandbox)
        await sandbox.exec("rm -f -- /logs/verifier/reward.txt /logs/verifier/reward.json", user="root")
        (tmp_path / "tests").mkdir()
        script(
            tmp_path / "tests" / "test.sh", "ls /tests /logs/verifier; cat /logs/agent/*; echo 1 >/logs/verifier/new"
        )
        await sandbox.upload_dir(tmp_path / "tests", "/tests")
        await sandbox.exec("chmod +x /tests/test.sh", user="root")
        await sandbox.exec("(/tests/test.sh) > /logs/verifier/test-stdout.txt 2>&1")
        await sandbox.download_dir("/logs/verifier", tmp_path / "verifier")
        assert [(tmp_path / name).read_text() for name in ("agent/a", "artifacts/b")] == ["a\n", "b\n"]
        assert sorted(path.name for path in (tmp_path / "verifier").iterdir()) == ["new", "test-stdout.txt"]
        said = "/logs/verifier:\ntest-stdout.txt\n\n/tests:\ntest.sh\na\nours\n"
        assert (tmp_path / "verifier" / "test-stdout.txt").read_text() == said
        assert await self.running(sandbox, "sleep 765") == 0

    def agent_ended(self, sandbox: ShellSandbox, folders: list[str]) -> None:
        sandbox.agent_ended(folders)

    async def quiesce(self, sandbox: ShellSandbox) -> None:
        await sandbox.quiesce()

    async def test_64_mebibytes_go_up_and_come_down_unchanged(self, sandbox: ShellSandbox, tmp_path: Path) -> None:
        payload = os.urandom(1024 * 1024) * 64
        (tmp_path / "big").write_bytes(payload)
        await sandbox.upload_file(tmp_path / "big", "/app/in/big")
        await sandbox.download_file("/app/in/big", tmp_path / "back")
        assert hashlib.sha256((tmp_path / "back").read_bytes()).digest() == hashlib.sha256(payload).digest()

    async def test_a_directory_keeps_modes_links_empty_folders_and_odd_names(
        self, sandbox: ShellSandbox, tmp_path: Path
    ) -> None:
        source = tmp_path / "source"
        (source / "empty").mkdir(parents=True)
        (source / "a name\nof two lines").write_text("text")
        (source / "run.sh").write_text("#!/bin/sh\n")
        (source / "run.sh").chmod(0o755)
        (source / "link").symlink_to("run.sh")
        await sandbox.upload_dir(source, "/app/tree")
        await sandbox.download_dir("/app/tree", tmp_path / "back")
        back = tmp_path / "back"
        assert sorted(path.name for path in back.iterdir()) == ["a name\nof two lines", "empty", "link", "run.sh"]
        assert os.access(back / "run.sh", os.X_OK)
        assert (back / "link").readlink() == Path("run.sh")

    async def test_what_leads_out_of_the_download_is_left_behind(self, sandbox: ShellSandbox, tmp_path: Path) -> None:
        await sandbox.exec(
            "mkdir /app/out && cd /app/out && echo good >good && ln -s /etc/passwd absolute && ln -s ../../x up"
        )
        await sandbox.exec("mkfifo /app/out/pipe")
        await sandbox.download_dir("/app/out", tmp_path / "back")
        assert [path.name for path in (tmp_path / "back").iterdir()] == ["good"]
        assert "unsafe names" in sandbox.scope.warnings[0]

    async def test_a_missing_path_is_an_error_and_not_an_empty_download(
        self, sandbox: ShellSandbox, tmp_path: Path
    ) -> None:
        with pytest.raises(RuntimeError, match="exit code"):
            await sandbox.download_dir("/nowhere", tmp_path / "back")
        with pytest.raises(RuntimeError, match="exit code"):
            await sandbox.download_file("/nowhere", tmp_path / "file")

    async def test_many_commands_at_once_do_not_disturb_each_other(self, sandbox: ShellSandbox) -> None:
        results = await asyncio.gather(*(sandbox.exec(f"echo {number}") for number in range(16)))
        assert [result.stdout for result in results] == [f"{number}\n" for number in range(16)]

    async def running(self, sandbox: ShellSandbox, pattern: str) -> int:
        """Processes of the sandbox whose command line begins with the pattern."""
        listed = (
            "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null; echo; done | grep -c '^"
            + pattern
            + "' || :"
        )
        return int((await sandbox.exec(listed)).stdout or "0")
