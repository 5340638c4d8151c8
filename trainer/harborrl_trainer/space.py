"""Room on a volume: what is free, what will soon be needed, and from where on that is too little."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MIB = 1024**2
SCARCE_BYTES = 64 * MIB
"""Below this even a dump of a small rollout may not fit."""
TIGHT_BYTES = 1024 * MIB
"""Below this dumps and trial folders of a long run may fill the volume."""

type FreeBytes = Callable[[Path], int]


def free_bytes(path: Path) -> int:
    return shutil.disk_usage(path).free


@dataclass(frozen=True)
class Space:
    free_bytes: int
    needed_bytes: int
    """For what comes next: two checkpoints (a new one is written before an old one goes), at least 1 GiB."""

    @property
    def is_low(self) -> bool:
        return self.free_bytes < self.needed_bytes


def coarse(count: int) -> int:
    """Two significant digits, rounded down: a number that is reported must not change with every dump."""
    step: int = 10 ** max(len(str(count)) - 2, 0)
    return count // step * step
