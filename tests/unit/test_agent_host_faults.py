"""A machine that fails its server: no trial's end there is a number, nor a fault of the task's."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agent_http import replies
from support.agent_server import MARKS, CustomProvider, stage
from support.agent_tasks import write_task
from support.counted_sandboxes import FillsTheVolume
from support.small_volume import fill, small_volume

pytestmark = MARKS

SOLVES = "```sh\necho hello >greeting.txt\n```\nTASK_DONE"


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    with small_volume(tmp_path / "volume", 1) as volume:
        yield volume


async def test_a_full_volume_is_no_fault_of_the_task_and_forgotten_with_it(tasks: Path, volume: Path) -> None:
    """By `TaskNotFound` of every group a training would end for good."""
    async with stage(tasks, replies(SOLVES), trials_dir=volume) as it:
        filler = fill(volume)
        refused = await it.run()
        assert (refused["exit_status"], refused["infra_failure"]) == ("ServerError", True)
        assert "No space left on device" in refused["message"]
        assert "volumes and limits" in refused["message"]
        filler.unlink()
        assert (await it.run())["reward"] == 1.0


async def test_a_verifiers_files_that_find_no_room_are_no_zero(tasks: Path, volume: Path) -> None:
    write_task(
        tasks, "talks", verify="head -c 2000000 /dev/zero >/logs/verifier/log; echo 1 >/logs/verifier/reward.txt"
    )
    async with stage(tasks, replies(SOLVES), trials_dir=volume) as it:
        answer = await it.run(instance_id="talks")
        assert (answer["exit_status"], answer["eval_report"]) == ("ServerError", {})


async def test_a_reward_that_was_there_before_the_volume_was_full_is_answered(tasks: Path, volume: Path) -> None:
    provider = CustomProvider(f"{FillsTheVolume.__module__}:{FillsTheVolume.__qualname__}")
    async with stage(tasks, replies(SOLVES), trials_dir=volume, provider=provider) as it:
        answer = await it.run()
        assert (answer["exit_status"], answer["reward"]) == ("Submitted", 1.0)
        assert "No space left on device" in " ".join(answer["warnings"])


async def test_a_loop_of_links_is_no_task(tasks: Path) -> None:
    (tasks / "loop").symlink_to("loop")
    async with stage(tasks, replies(SOLVES)) as it:
        answer = await it.run(instance_id="loop")
        assert (answer["exit_status"], answer["infra_failure"]) == ("TaskNotFound", True)
