"""How much memory the machine used at most while something ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import override

MEMINFO = Path("/proc/meminfo")


def used_gib(meminfo: str) -> float:
    """Memory that cannot be given back, in GiB: MemTotal - MemAvailable of /proc/meminfo (proc_meminfo(5))."""
    kib = {line.split(":")[0]: int(line.split()[1]) for line in meminfo.splitlines() if ":" in line}
    return (kib["MemTotal"] - kib["MemAvailable"]) / 1024**2


@dataclass
class Peak:
    """The largest value seen by `sample`, and the one before anything started."""

    before: float = field(default_factory=lambda: used_gib(MEMINFO.read_text()))
    highest: float = 0.0

    def sample(self) -> None:
        self.highest = max(self.highest, used_gib(MEMINFO.read_text()))

    @override
    def __str__(self) -> str:
        return f"memory in use at most {self.highest:.1f} GiB ({self.before:.1f} before)"
