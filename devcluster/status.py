"""What the cluster is made of now: versions, readiness, memory of each program, disk."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

MIB = 1 << 20


@dataclass(frozen=True)
class MemoryUse:
    """Memory of one program or pod."""

    name: str
    pid: int | None
    """None for a pod, and for a program that does not run."""

    resident: int
    """Bytes. For programs that share pages this counts the shared ones in each of them."""

    proportional: int
    """Bytes, with shared pages divided between their users; the sum is what the machine really gives."""


@dataclass(frozen=True)
class Report:
    backend: str
    ready: bool
    versions: Mapping[str, str]
    nodes: Mapping[str, str]
    memory: Sequence[MemoryUse]
    disk: Mapping[str, int]
    """Folder to bytes on disk (holes are free)."""

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def parse_memory(smaps_rollup: str) -> tuple[int, int]:
    """Resident and proportional bytes from /proc/PID/smaps_rollup."""
    values = {
        key: int(value) * 1024 for key, value in re.findall(r"^(Rss|Pss):\s+(\d+) kB", smaps_rollup, re.MULTILINE)
    }
    return values.get("Rss", 0), values.get("Pss", 0)


def program_memory(name: str, pid: int | None, proc: Path = Path("/proc")) -> MemoryUse:
    if pid is None:
        return MemoryUse(name, None, 0, 0)
    try:
        resident, proportional = parse_memory((proc / str(pid) / "smaps_rollup").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return MemoryUse(name, None, 0, 0)
    return MemoryUse(name, pid, resident, proportional)


def pod_memory(metrics: str, namespaces: Sequence[str]) -> list[MemoryUse]:
    """Working set of the pods in these namespaces, from the text of the kubelet's /metrics/resource."""
    line = r'^pod_memory_working_set_bytes\{namespace="([^"]+)",pod="([^"]+)"\} (\S+)'
    return [
        MemoryUse(f"pod {pod}", None, int(float(used)), int(float(used)))
        for namespace, pod, used in re.findall(line, metrics, re.MULTILINE)
        if namespace in namespaces
    ]


def print_report(report: Report, console: Console) -> None:
    console.print(f"{report.backend}: {'ready' if report.ready else 'not ready'}")
    console.print(", ".join(f"{name} {version}" for name, version in report.versions.items()))
    for name, state in report.nodes.items():
        console.print(f"{name}: {state}")
    if report.memory:
        console.print(_memory_table(report.memory))
    for name, size in report.disk.items():
        console.print(f"disk {name}: {size / MIB:,.0f} MiB")


def _memory_table(memory: Sequence[MemoryUse]) -> Table:
    table = Table(box=None)
    for title in ("program", "pid", "resident MiB", "proportional MiB"):
        table.add_column(title, no_wrap=True)
    for use in memory:
        pid = str(use.pid) if use.pid else ("" if use.name.startswith("pod ") else "not running")
        table.add_row(use.name, pid, f"{use.resident / MIB:.0f}", f"{use.proportional / MIB:.0f}")
    total = (sum(use.resident for use in memory), sum(use.proportional for use in memory))
    table.add_row("total", "", f"{total[0] / MIB:.0f}", f"{total[1] / MIB:.0f}")
    return table
