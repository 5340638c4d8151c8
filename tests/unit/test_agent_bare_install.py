"""The package alone, as `pip install .` leaves it: what its programs need is an extra."""

import asyncio
import sys
from pathlib import Path

import harborrl_agent_server

SOURCES = str(Path(harborrl_agent_server.__file__).parents[1])

RUN = f"""
import runpy, sys
sys.path.insert(0, {SOURCES!r})
runpy.run_module("harborrl_agent_server", run_name="__main__")
"""


async def test_it_says_in_one_line_what_to_install() -> None:
    bare = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", RUN), stderr=asyncio.subprocess.PIPE
    )
    _, said = await bare.communicate()
    assert bare.returncode == 64, said
    assert said.startswith(b"harborrl_agent_server: harbor, kubernetes, ")
    assert b"pip install 'harborrl[agent-server]'" in said
    assert said.count(b"\n") == 1
