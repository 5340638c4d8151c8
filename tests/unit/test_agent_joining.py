"""Commands that go together when the agent is done, and what holds where they cannot."""

import asyncio
import contextlib
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harborrl_agent_server.sandboxes.fetching import BLOCK, split
from harborrl_agent_server.sandboxes.joining import AGENT_LOGS, REMOVES_REWARDS, TESTS
from harborrl_agent_server.sandboxes.local import LocalProvider, LocalSandbox
from harborrl_agent_server.sandboxes.pod_exec import counted
from harborrl_agent_server.sandboxes.staging import Stage
from support.agent_http import eventually, replies
from support.agent_server import MARKS, CustomProvider, stage
from support.agent_tasks import write_task
from support.counted_sandboxes import BreaksBehindTests, Counted, TakesLittle
from support.sandbox_suite import started

pytestmark = MARKS

AGENTS = 1
"""Commands of its own."""


async def trial(
    folder: Path, command: str = "echo hello >/app/greeting.txt", sandbox: type[LocalSandbox] = Counted, **task: Any
) -> tuple[dict[str, Any], Path]:
    """The answer of a trial with one command, and its directory."""
    Counted.entered = []
    write_task(folder / "tasks", **task)
    provider = CustomProvider(f"{sandbox.__module__}:{sandbox.__qualname__}")
    async with stage(folder / "tasks", replies(f"```sh\n{command}\n```\nTASK_DONE"), provider=provider) as server:
        answer = await server.run()
        return answer, server.settings.trials_dir / answer["trial_name"]


async def test_a_trial_whose_sandbox_is_prepared_has_three_commands_besides_the_agents_own(tmp_path: Path) -> None:
    answer, _ = await trial(tmp_path)
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 1.0)
    assert len(Counted.entered) == 3 + AGENTS, [argv[2][:80] for argv in Counted.entered]


async def test_what_agent_and_verifier_wrote_arrives_as_if_each_folder_had_come_alone(tmp_path: Path) -> None:
    command = "echo said >/logs/agent/note; echo made >/logs/artifacts/out; ln -s /etc/passwd /logs/artifacts/link"
    answer, directory = await trial(
        tmp_path,
        command,
        verify="echo why; cat /logs/agent/trajectory.json >/dev/null && echo 1 >/logs/verifier/reward.txt",
    )
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 1.0)
    assert (directory / "agent" / "note").read_text() == "said\n"
    assert [path.name for path in (directory / "artifacts/logs/artifacts").iterdir()] == ["out"]
    assert (directory / "verifier" / "test-stdout.txt").read_text() == "why\n"
    assert answer["warnings"] == ["/logs/artifacts: left out unsafe names './link'"]


async def test_what_is_too_large_to_come_together_comes_alone(tmp_path: Path) -> None:
    large = "head -c 3000000 /dev/zero | tr '\\0'"
    answer, directory = await trial(
        tmp_path, f"{large} a >/logs/artifacts/out", verify=f"{large} b; echo 1 >/logs/verifier/reward.txt"
    )
    assert answer["reward"] == 1.0
    assert (directory / "artifacts/logs/artifacts/out").stat().st_size == 3_000_000
    assert (directory / "verifier" / "test-stdout.txt").stat().st_size == 3_000_000


FLOODS = [
    pytest.param("head -c 9000000 /dev/zero", id="one long output"),
    pytest.param("head -c 9000000 /dev/zero >/logs/verifier/more", id="a large file"),
    pytest.param("truncate -s 50G /logs/verifier/hole", id="a file of holes"),
]


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_verifier_that_writes_without_measure_is_believed_all_the_same(tmp_path: Path, flood: str) -> None:
    verify = f"{flood}; echo '{{\"reward\": 0.5}}' >/logs/verifier/reward.json"
    answer, directory = await trial(tmp_path, sandbox=TakesLittle, verify=verify)
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 0.5)
    assert "the reward alone was kept" in " ".join(answer["warnings"])
    assert (directory / "verifier" / "reward.json").exists()


async def test_a_verifier_that_writes_without_measure_and_no_reward_has_failed(tmp_path: Path) -> None:
    answer, _ = await trial(tmp_path, sandbox=TakesLittle, verify="head -c 9000000 /dev/zero")
    assert (answer["exit_status"], answer["reward"]) == ("VerifierError", 0.0)


async def test_logs_that_cannot_go_back_cost_no_grading(tmp_path: Path) -> None:
    answer, directory = await trial(tmp_path, "echo hello >/app/greeting.txt; rm -rf /logs/agent; echo >/logs/agent")
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 1.0)
    assert "/logs/agent" in (directory / "trial.log").read_text()


async def test_rewards_that_cannot_be_removed_are_the_verifiers_error(tmp_path: Path) -> None:
    answer, _ = await trial(tmp_path, "mkdir /logs/verifier/reward.json")
    assert (answer["exit_status"], answer["infra_failure"], "reward.json" in answer["message"]) == (
        "VerifierError",
        False,
        True,
    )


async def test_planted_tests_rewards_and_daemons_are_gone_when_the_tests_run(tmp_path: Path) -> None:
    plant = "mkdir /tests; echo x >/tests/planted; echo 1 >/logs/verifier/reward.txt; setsid sleep 4711 & sleep 0.1"
    verify = "[ -e /tests/planted ] || ps -e -o args= | grep -q '^sleep 4711' || [ -s /logs/verifier/reward.txt ]"
    answer, _ = await trial(
        tmp_path, plant, verify=f"if {verify}; then r=0; else r=1; fi; echo $r >/logs/verifier/reward.txt"
    )
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 1.0)


async def test_an_artifact_of_the_agents_logs_has_what_the_server_wrote_there(tmp_path: Path) -> None:
    _, directory = await trial(tmp_path, toml=f'[[artifacts]]\nsource = "{AGENT_LOGS}"')
    assert (directory / "artifacts/logs/agent/trajectory.json").exists()


async def test_artifacts_that_a_task_names_come_with_the_logs_and_files_of_them_alone(tmp_path: Path) -> None:
    named = '[[artifacts]]\nsource = "/app/out"\n[[artifacts]]\nsource = "/app/greeting.txt"'
    answer, directory = await trial(tmp_path, "mkdir out; echo x >out/x; echo hello >greeting.txt", toml=named)
    assert answer["reward"] == 1.0
    assert (directory / "artifacts/app/out/x").read_text() == "x\n"
    assert (directory / "artifacts/app/greeting.txt").read_text() == "hello\n"
    assert len(Counted.entered) == 4 + AGENTS, [argv[2][:80] for argv in Counted.entered]


async def test_a_way_that_breaks_behind_the_tests_costs_another_download_and_no_trial(tmp_path: Path) -> None:
    answer, directory = await trial(tmp_path, sandbox=BreaksBehindTests)
    assert (answer["exit_status"], answer["reward"]) == ("Submitted", 1.0)
    assert (directory / "verifier" / "reward.txt").read_text() == "1\n"


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[LocalSandbox]:
    provider = LocalProvider()
    async with started(provider, tmp_path) as sandbox:
        assert isinstance(sandbox, LocalSandbox)
        yield sandbox
    await provider.close()


async def test_a_command_of_the_agent_is_never_taken_for_one_of_the_grading(sandbox: LocalSandbox) -> None:
    sandbox.agent_ended([])
    sandbox.agent_begins()
    await sandbox.exec("mkdir -p /logs/verifier /logs/verifier/reward.txt")
    assert (await sandbox.exec(REMOVES_REWARDS, user="root")).return_code != 0


async def test_what_was_put_off_is_done_before_anything_else_enters(sandbox: LocalSandbox, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test.sh").write_text("#!/bin/sh\necho ran\n")
    sandbox.agent_ended([])
    await sandbox.quiesce()
    await sandbox.upload_dir(tmp_path / "tests", TESTS)
    (tmp_path / "tests" / "test.sh").unlink()
    await sandbox.exec("chmod +x /tests/test.sh", user="root")
    assert (await sandbox.exec("/tests/test.sh")).stdout == "ran\n"


async def test_an_upload_that_is_cancelled_while_it_is_packed_leaves_no_file_open(
    sandbox: LocalSandbox, tmp_path: Path
) -> None:
    many = tmp_path / "tests"
    many.mkdir()
    for number in range(3000):
        (many / str(number)).touch()
    before = unnamed()
    sandbox.agent_ended([])
    uploading = asyncio.ensure_future(sandbox.upload_dir(many, TESTS))
    await eventually(lambda: unnamed() > before)
    uploading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await uploading
    assert unnamed() == before


def unnamed() -> int:
    """How many files without a name this process has open."""
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread has closed it meanwhile
            found += str(path.readlink()).endswith(" (deleted)")
    return found


async def test_folders_that_a_command_may_have_changed_are_fetched_anew(sandbox: LocalSandbox, tmp_path: Path) -> None:
    await sandbox.exec("mkdir /app/a /app/b; echo old >/app/b/file")
    sandbox.agent_ended(["/app/a", "/app/b", "/app/none"])
    await sandbox.download_dir("/app/a", tmp_path / "a")
    await sandbox.exec("echo new >/app/b/file")
    await sandbox.download_dir("/app/b", tmp_path / "b")
    assert (tmp_path / "b" / "file").read_text() == "new\n"
    assert not await sandbox.is_dir("/app/none", user="root")


def test_of_an_output_that_breaks_off_only_whole_archives_count() -> None:
    one = archive("one")
    whole = block("folder") + one + block("end 0") + block("other") + block("folder") + one + block("end 0")
    assert split(whole) == [one, None, one]
    cuts = range(0, len(whole), BLOCK // 2)
    assert all(split(whole[:cut]) == [one, None, one][: len(split(whole[:cut]))] for cut in cuts)
    assert split(whole[:-BLOCK]) == [one, None]
    assert split(block("folder") + one + block("end 2") + block("other")) == []
    assert split(b"no archive at all") == []


def block(word: str) -> bytes:
    return word.ljust(BLOCK).encode()


def archive(name: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    return file.getvalue()


def test_a_command_that_ends_all_others_has_nobody_before_it_who_counts_its_input() -> None:
    begun = Stage()
    begun.quiesces = True
    with io.BytesIO() as payload:
        joined = begun.joined(payload)
    assert counted(joined, io.BytesIO(b"files")) == joined
    assert counted(["tar"], io.BytesIO(b"files"))[-2:] == ["5", "tar"]
