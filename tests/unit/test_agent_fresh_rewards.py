"""Which reward files count, by the scripts that run before and after a grading."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from harborrl_agent_server.sandboxes import commands


def run(script: str, root: Path) -> None:
    """With the sandbox's absolute paths below `root`, and without ending anybody's processes."""
    moved = re.sub(r"(?<![\w.])/(logs|tests|\.harborrl)", rf"{root}/\1", script.replace("kill -9 -1", "true"))
    subprocess.run(["/bin/sh", "-c", moved], check=True, timeout=60)  # noqa: S603 - ours


@pytest.fixture
def reward(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "verifier" / "reward.txt"
    path.parent.mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    ("after_s", "counts"),
    [
        pytest.param(-1, False, id="before"),
        pytest.param(0, True, id="at once"),
        pytest.param(60, False, id="after its end"),
    ],
)
def test_a_reward_counts_from_the_beginning_of_the_grading_to_its_end(reward: Path, after_s: int, counts: bool) -> None:
    root = reward.parents[2]
    run(commands.QUIESCE, root)
    reward.write_text("1")
    began = Path(f"{root}{commands.GRADING}").stat().st_mtime_ns
    os.utime(reward, ns=(began, began + after_s * 10**9))
    run(commands.ONLY_FRESH, root)
    assert (reward.read_text() == "1", (reward.parent / "reward.txt.refused").exists()) == (counts, not counts)


def test_a_reward_that_is_there_before_the_grading_is_empty_when_it_begins(reward: Path) -> None:
    reward.write_text("1")
    run(commands.QUIESCE, reward.parents[2])
    assert (reward.read_text(), (reward.parent / "reward.txt.refused").exists()) == ("", True)
