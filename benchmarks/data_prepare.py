"""What `harborrl data prepare` costs beside a plain copy of the same rows through orjson, on one core.

`PYTHONPATH=cli:trainer python benchmarks/data_prepare.py --output benchmarks/results/data_prepare` makes a JSONL of
SWE-bench shaped rows, prepares and copies it in turns, each time in a process of its own, and prints rows a second (of
wall clock and of CPU) and the largest resident memory of each. On a shared machine the ratio is what counts. Memory is
also measured with fewer rows: what grows is the set of ids. Ends with 1 when a bound is missed.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COPY = """
import sys, orjson
with open(sys.argv[1], "rb") as rows, open(sys.argv[2], "wb", buffering=1 << 20) as out:
    for line in rows:
        out.write(orjson.dumps(orjson.loads(line), option=orjson.OPT_APPEND_NEWLINE))
    out.flush()
    __import__("os").fsync(out.fileno())
"""
WORDS = 1000
MEGABYTES = 300
ROWS_A_CPU_SECOND = 50_000
TIMES_A_COPY = 2
"""Either of the two will do: a slow machine is slow at copying as well."""


def write_rows(path: Path, count: int) -> None:
    """About 460 bytes a row, ids of 20 characters, one reserved key in ten rows."""
    draw = random.Random(7)  # noqa: S311 - text for a measurement
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(WORDS)]
    texts = [" ".join(draw.choices(words, k=25)) for _ in range(WORDS)]
    with path.open("w", buffering=1024 * 1024) as file:
        for number in range(count):
            row: dict[str, Any] = {
                "instance_id": f"owner__repo-{number:08d}",
                "repo": "owner/repo",
                "base_commit": f"{number:040x}",
                "problem_statement": texts[number % WORDS],
                "patch": texts[(number * 7) % WORDS],
                "version": "1.0",
            }
            if number % 10 == 0:
                row["reward"] = 1.0
            file.write(json.dumps(row) + "\n")


def measure(command: list[str]) -> dict[str, float]:
    """Wall and CPU seconds of a process, and its largest resident memory in MB."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[:4]} ended with {process.returncode}")
    wall = time.perf_counter() - begun
    return {"wallSeconds": wall, "cpuSeconds": used.ru_utime + used.ru_stime, "peakMegabytes": used.ru_maxrss / 1024}


def prepare(rows: Path, out: Path) -> dict[str, float]:
    return measure(
        [sys.executable, "-m", "harborrl_cli", "data", "prepare", "--input", str(rows), "--output", str(out)]
    )


def copy(rows: Path, out: Path) -> dict[str, float]:
    return measure([sys.executable, "-c", COPY, str(rows), str(out)])


def typical(runs: list[dict[str, float]], count: int) -> dict[str, float]:
    """The medians, and rates of them."""
    middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    rates = {"rowsPerSecond": count / middle["wallSeconds"], "rowsPerCpuSecond": count / middle["cpuSeconds"]}
    return {key: round(value, 2) for key, value in (middle | rates).items()}


def run(folder: Path, count: int, rounds: int) -> dict[str, Any]:
    rows, out = folder / "rows.jsonl", folder / "out.jsonl"
    sizes = [max(count * part // 100, 1) for part in (1, 10, 30)]
    memory = []
    for size in sizes:
        write_rows(rows, size)
        memory.append({"rows": size, "peakMegabytes": round(prepare(rows, out)["peakMegabytes"], 1)})
    write_rows(rows, count)
    prepared, copied = [], []
    for _ in range(rounds):
        copied.append(copy(rows, out))
        prepared.append(prepare(rows, out))
    ours, plain = typical(prepared, count), typical(copied, count)
    memory.append({"rows": count, "peakMegabytes": round(ours["peakMegabytes"], 1)})
    return {
        "rows": count,
        "megabytes": round(rows.stat().st_size / 1e6, 1),
        "rounds": rounds,
        "python": sys.version.split()[0],
        "prepare": ours,
        "copy": plain,
        "timesACopy": {
            "wall": round(ours["wallSeconds"] / plain["wallSeconds"], 2),
            "cpu": round(ours["cpuSeconds"] / plain["cpuSeconds"], 2),
        },
        "memory": memory,
    }


def missed(found: dict[str, Any]) -> list[str]:
    said = []
    if (peak := max(one["peakMegabytes"] for one in found["memory"])) >= MEGABYTES:
        said.append(f"the largest resident memory was {peak} MB, the bound is {MEGABYTES} MB")
    rate, times = found["prepare"]["rowsPerCpuSecond"], found["timesACopy"]["cpu"]
    if rate <= ROWS_A_CPU_SECOND and times > TIMES_A_COPY:
        said.append(
            f"{rate:.0f} rows a CPU second and {times} times a copy, the bound is {ROWS_A_CPU_SECOND} rows or"
            f" {TIMES_A_COPY} times a copy"
        )
    return said


def plot(found: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl  # noqa: PLC0415 - for the picture alone

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after its back end is chosen

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    names = ["plain orjson copy", "harborrl data prepare"]
    rates = [found[key]["rowsPerCpuSecond"] / 1000 for key in ("copy", "prepare")]
    bars = left.barh(names, rates, color=["#9aa5b1", "#2b6cb0"])
    left.bar_label(bars, fmt="%.0f", padding=3)
    left.set(xlabel="thousand rows a CPU second", title=f"{found['rows']:,} rows, {found['megabytes']:.0f} MB")
    left.set_xlim(0, max(rates) * 1.2)
    right.plot(
        [one["rows"] / 1000 for one in found["memory"]],
        [one["peakMegabytes"] for one in found["memory"]],
        marker="o",
        color="#2b6cb0",
    )
    right.axhline(MEGABYTES, color="#c53030", linestyle="--", linewidth=1)
    right.set(xlabel="thousand rows", ylabel="MB", title="largest resident memory (bound: 300 MB)", ylim=(0, 320))
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="folder for result.json and result.png")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), options.rows, options.rounds)
    text = json.dumps(found, indent=2)
    print(text)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "result.json").write_text(text + "\n")
        plot(found, options.output / "result.png")
    if said := missed(found):
        raise SystemExit("\n".join(said))


if __name__ == "__main__":
    main()
