"""What many unit tests begin with."""

from pathlib import Path

import pytest

from support.agent_tasks import write_task


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A folder of tasks with one, `write-greeting`."""
    root = tmp_path / "tasks"
    write_task(root)
    return root
