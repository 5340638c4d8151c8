"""`python benchmarks/plot_trials.py FOLDER` draws its 512.json and 5000.json, which agent_server.py wrote, as a PNG."""

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

NAMES = {"server": "our server", "harbor": "Harbor's job"}


def draw(folder: Path) -> None:
    many, long = (json.loads((folder / f"{number}.json").read_text()) for number in (512, 5000))
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for runner, name in NAMES.items():
        if runner in many:
            curve(left, many[runner]["time_line"], "worst_lag_ms", name)
    left.axhline(250, color="grey", linestyle=":", linewidth=1)
    left.set(
        yscale="log",
        xlabel="seconds since the first trial was asked for",
        ylabel="latest waking of the event loop, ms",
        title=f"{many['concurrent']} trials at once",
    )
    left.legend()
    line = long["server"]["time_line"]
    for field, name in (("resident_mib", "memory, MiB"), ("descriptors", "descriptors"), ("loggers", "loggers")):
        curve(right, line, field, name)
    title = f"{long['server']['trials']} trials, {long['concurrent']} at once"
    right.set(xlabel="seconds", ylim=(0, None), title=title)
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(folder / "trials.png", dpi=110)


def curve(axes: Any, line: list[dict[str, float]], field: str, name: str) -> None:
    axes.plot([point["seconds"] for point in line], [point[field] for point in line], label=name, linewidth=1)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
