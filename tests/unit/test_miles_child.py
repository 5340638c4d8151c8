"""Miles as a child of the driver: its output passed on, its end told, nothing of it kept."""

import io
import signal
import sys
from pathlib import Path

import pytest

from harborrl_trainer.miles_engine.child import Child
from support.agent_http import eventually
from support.descriptors import open_here, room_for
from support.pids import is_running


def child(out: io.BytesIO, folder: Path, program: str) -> Child:
    return Child([sys.executable, "-c", program], {}, folder, out)


def test_its_output_is_passed_on_its_code_told_and_no_descriptor_kept(tmp_path: Path) -> None:
    before, out = open_here(), io.BytesIO()
    started = child(out, tmp_path, "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(7)")
    assert started.wait(60) == 7
    assert (out.getvalue(), started.tail) == (b"out\nerr\n", "out\nerr\n")
    assert open_here() == before


def test_one_that_cannot_be_started_keeps_none(tmp_path: Path) -> None:
    before = open_here()
    for more in range(4):
        with room_for(more), pytest.raises(OSError, match="Too many open files"):
            child(io.BytesIO(), tmp_path, "")
    assert open_here() == before


async def test_it_is_ended_with_what_it_started(tmp_path: Path) -> None:
    out = io.BytesIO()
    program = (
        "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); import time; time.sleep(600)"
    )
    started = child(out, tmp_path, program)
    while not out.getvalue().endswith(b"\n"):
        assert started.wait(0.05) is None
    assert started.end() == -signal.SIGTERM
    await eventually(lambda: not is_running(int(out.getvalue())))
