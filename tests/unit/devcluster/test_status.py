import io
import json
import os
from pathlib import Path

import pytest
from devcluster.cluster import disk_use
from devcluster.controlplane import wait_until
from devcluster.errors import ComponentError
from devcluster.processes import Supervisor
from devcluster.progress import Reporter
from devcluster.status import MemoryUse, Report, parse_memory, pod_memory, print_report, program_memory
from rich.console import Console

REPORT = Report(
    "own cluster",
    ready=True,
    versions={"Kubernetes": "v1.35.4"},
    nodes={"devcluster": "Ready"},
    memory=[MemoryUse("etcd", 7, 3 << 20, 2 << 20), MemoryUse("kubelet", None, 0, 0)],
    disk={"etcd": 5 << 20},
)


def test_memory_is_read_in_bytes() -> None:
    rollup = "00400000-7ffc (deleted)\nRss:   2048 kB\nPss:   1024 kB\nPss_Anon:  512 kB\n"
    assert parse_memory(rollup) == (2 << 20, 1 << 20)


def test_a_living_program_has_memory_and_an_absent_one_none() -> None:
    assert program_memory("self", os.getpid()).resident > 0
    assert program_memory("gone", None) == MemoryUse("gone", None, 0, 0)


def test_only_pods_of_the_systems_namespaces_count() -> None:
    metrics = (
        'pod_memory_working_set_bytes{namespace="kube-system",pod="coredns-1"} 1.2e+07 1795965351605\n'
        'pod_memory_working_set_bytes{namespace="research",pod="trainer"} 9e+09 1795965351605\n'
    )
    assert pod_memory(metrics, ["kube-system"]) == [MemoryUse("pod coredns-1", None, 12_000_000, 12_000_000)]


def test_the_printed_report_tells_what_does_not_run_and_sums_up() -> None:
    console = Console(file=io.StringIO(), width=100)
    print_report(REPORT, console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert "own cluster: ready" in lines
    assert any("kubelet" in line and "not running" in line for line in lines)
    assert any(line.split()[:2] == ["total", "3"] for line in lines)


def test_the_report_is_json_for_programs() -> None:
    assert json.loads(REPORT.as_json())["memory"][0]["name"] == "etcd"


def test_holes_take_no_disk(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * 8192)
    with (tmp_path / "hole").open("wb") as stream:
        stream.truncate(1 << 30)
    assert 8192 <= disk_use(tmp_path) < 1 << 20


def test_waiting_for_a_program_that_is_gone_ends_with_its_last_words(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path / "run", tmp_path / "log")
    supervisor.logs.mkdir()
    supervisor.log_file("etcd").write_text("cannot open the database\n")
    with pytest.raises(ComponentError, match=r"(?s)etcd ended while starting.*cannot open the database"):
        wait_until(lambda: False, "etcd", supervisor)


def test_stages_are_plain_lines_without_a_terminal_and_are_timed() -> None:
    now = iter([10.0, 13.5])
    reporter = Reporter(Console(file=io.StringIO(), width=80), clock=lambda: next(now))
    with reporter.stage("Build kube") as advance:
        for percent in range(0, 100, 5):
            advance(percent / 100)
    assert isinstance(reporter.console.file, io.StringIO)
    assert reporter.console.file.getvalue().splitlines() == [
        "Build kube …",
        "Build kube: 25 %",
        "Build kube: 50 %",
        "Build kube: 75 %",
        "Build kube: 3.5 s",
    ]
    assert reporter.timings == [("Build kube", 3.5)]
