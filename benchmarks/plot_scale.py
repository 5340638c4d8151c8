"""`python benchmarks/plot_scale.py FOLDER/500.json` draws what operator_scale.py measured beside it, as a PNG."""

import json
import sys
from pathlib import Path

from matplotlib.figure import Figure


def draw(measured: Path) -> None:
    result = json.loads(measured.read_text())
    line, latencies = result["time_line"], result["spec_change_to_status_seconds"]["all"]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    seconds = [point["seconds"] for point in line]
    left.plot(seconds, [point["judged"] for point in line], label="jobs judged")
    left.plot(seconds, [point["resident_mib"] for point in line], label="memory of the operator, MiB")
    left.set(xlabel="seconds since the first of them was created", title=f"{result['jobs']} jobs at once")
    left.legend(loc="lower right")
    share = [(index + 1) / len(latencies) for index in range(len(latencies))]
    right.step(latencies, share, where="post")
    right.set(
        xscale="log",
        xlabel="seconds from an edit to the status that has seen it",
        ylabel="share of the edits",
        ylim=(0, 1.02),
        title=f"{result['black_holes']} of the jobs never answer",
    )
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(measured.with_suffix(".png"), dpi=110)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
