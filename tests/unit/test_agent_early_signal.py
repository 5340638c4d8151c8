"""A server that is told to end while it still imports: as process 1 of a container it has to ask for the signal."""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SLOW = "import sys, threading\nprint('importing', flush=True)\nthreading.Event().wait(60)\n"
"""In the place of a module that the server needs; a wait that a signal's handler ends."""


def test_a_server_that_is_told_to_end_while_it_imports_ends(tmp_path: Path) -> None:
    (tmp_path / "uvicorn.py").write_text(SLOW)
    paths = os.pathsep.join(map(str, (tmp_path, ROOT / "agent_server")))
    # Ignored, as the kernel does for a process 1 that has no handler.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        server = subprocess.Popen(
            [sys.executable, "-m", "harborrl_agent_server"],
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGTERM, before)
    with server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == "importing\n"
            server.terminate()
            assert server.wait(timeout=30) == 0
        finally:
            server.kill()
