"""Process 1 of an agent server's container: the kubelet waits for it as long as a trial may last."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from harborrl_agent_server.guard import Silence

ROOT = Path(__file__).resolve().parents[2]

FRAME = """
import os, signal, subprocess, sys, threading
from harborrl_agent_server.guard import guarded

def forever():
    while True:
        threading.Event().wait(0.2)  # a signal that comes just before a wait is seen after it

def serve(beat):
    global told
    told = threading.Event()
{serve}

sys.exit(guarded(serve, hung_s={hung_s}))
"""

ENDS = """
    return 64
"""
OBEYS = """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("serving", flush=True)
    forever()
"""
HANGS = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("serving", flush=True)
    forever()
"""
DRAINS = """
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    print("serving", flush=True)
    while not told.wait(0.2):
        pass
    beat()
    print("drained", flush=True)
    return 0
"""
CRASHES = """
    os.kill(os.getpid(), signal.SIGSEGV)
"""


@contextmanager
def guard_of(serve: str, hung_s: float = 60) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", FRAME.format(serve=serve, hung_s=hung_s)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "agent_server")}
    with subprocess.Popen(  # noqa: S603 - our own program
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # nobody of its group is left
                os.killpg(process.pid, signal.SIGKILL)


def told_to_go(serve: str, hung_s: float = 60) -> tuple[int, str, str]:
    with guard_of(serve, hung_s) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "serving\n"
        process.terminate()
        rest, errors = process.communicate(timeout=30)
        return process.returncode, rest, errors


def test_the_code_of_the_server_is_the_code_of_the_container() -> None:
    with guard_of(ENDS) as process:
        assert process.wait(timeout=30) == 64


def test_a_server_that_ends_when_it_is_told_to_is_left_alone() -> None:
    code, _, errors = told_to_go(OBEYS)
    assert (code, errors) == (0, "")


def test_a_server_that_hangs_when_it_is_told_to_go_is_killed_and_says_so() -> None:
    code, _, errors = told_to_go(HANGS, hung_s=0.5)
    assert code == 128 + signal.SIGKILL
    assert "hangs" in errors


def test_a_server_that_lets_its_last_trials_end_ends_by_itself() -> None:
    code, rest, errors = told_to_go(DRAINS)
    assert (code, rest, errors) == (0, "drained\n", "")


def test_only_silence_after_it_was_told_to_go_counts_and_each_sign_of_life_ends_it() -> None:
    silence = Silence(45)
    silence.heard(0)
    assert not silence.is_too_long(10_000)
    silence.told_to_go(10_000)
    silence.told_to_go(10_040)
    assert [silence.is_too_long(now) for now in range(10_000, 10_047)] == [False] * 46 + [True]
    silence.heard(10_047)
    assert [silence.is_too_long(now) for now in range(10_047, 10_094)] == [False] * 46 + [True]


def test_a_watcher_that_stood_still_itself_blames_nobody_for_that_time() -> None:
    silence = Silence(45)
    silence.told_to_go(0)
    assert not silence.is_too_long(1)
    assert not silence.is_too_long(3600)
    assert [silence.is_too_long(now) for now in range(3601, 3646)] == [False] * 44 + [True]


def test_a_crash_is_told_by_the_code_as_a_shell_does() -> None:
    with guard_of(CRASHES) as process:
        assert process.wait(timeout=30) == 128 + signal.SIGSEGV


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_either_wish_to_stop_reaches_the_server(sign: signal.Signals) -> None:
    with guard_of(OBEYS.replace("signal.SIGTERM", f"signal.{sign.name}")) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(sign)
        assert process.wait(timeout=30) == 0
