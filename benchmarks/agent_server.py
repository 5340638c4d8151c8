"""What many trials at once cost: our server beside Harbor's own job runner, on the same tasks and sandboxes.

`PYTHONPATH=agent_server:tests:. python benchmarks/agent_server.py --output FOLDER` as root on Linux. Sandboxes are
namespaces of this machine, the model is a script in a process of its own, so what is measured is the process that runs
the trials: its processor time without its sandboxes' (`processor_seconds_per_trial`), how late its event loop wakes,
what it holds. `--trials 5000` shows what stays. `--think` is what the scripted model takes for an answer.
"""

import argparse
import asyncio
import json
import os
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.trial_load.measuring import Load, of_harbor, of_server, session_server

from support.agent_tasks import write_task

TASKS = 64

ROWS = (
    ("trials a minute", "trials_per_minute"),
    ("processor seconds a trial, of the process", "processor_seconds_per_trial"),
    ("processor seconds a trial, of its sandboxes", "sandbox_processor_seconds_per_trial"),
    ("event loop late, ms: p50, p99, at most", "loop_lag_ms"),
    ("memory, MiB: at rest, at most, afterwards", "resident_mib"),
    ("memory, MiB a concurrent trial", "mib_per_concurrent_trial"),
    ("file descriptors: the same", "descriptors"),
    ("threads: the same", "threads"),
    ("logger objects: the same", "loggers"),
    ("trials with reward 1", "solved"),
)


async def measure(chosen: argparse.Namespace, folder: Path) -> dict[str, Any]:
    tasks = [write_task(folder / "tasks", f"greeting-{number:02}") for number in range(TASKS)]
    result: dict[str, Any] = {"machine": machine(), "turns": chosen.turns, "concurrent": chosen.concurrent}
    async with session_server(chosen.turns, chosen.think) as session_url:
        load = Load(tasks, chosen.trials, chosen.concurrent, chosen.turns, session_url)
        for runner in chosen.runners.split(","):
            own = folder / runner
            own.mkdir()
            result[runner] = await (of_server(load, own, chosen.flags) if runner == "server" else of_harbor(load, own))
    return result


def machine() -> dict[str, Any]:
    packages = {name: version(name) for name in ("harbor", "httpx", "uvicorn", "pydantic")}
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load_1_minute": round(os.getloadavg()[0], 1),
        **packages,
    }


def table(result: dict[str, Any]) -> str:
    runners = [name for name in ("server", "harbor") if name in result]
    lines = [f"{'':48}" + "".join(f"{name:>22}" for name in runners)]
    lines += [f"{title:48}" + "".join(f"{cell(result[name][field]):>22}" for name in runners) for title, field in ROWS]
    if len(runners) == 2:
        ratio = result["server"]["trials_per_minute"] / result["harbor"]["trials_per_minute"]
        lines.append(f"{ratio:.2f} times the trials a minute of Harbor's own runner")
    return "\n".join(lines)


def cell(value: Any) -> str:
    return " ".join(str(one) for one in value.values()) if isinstance(value, dict) else str(value)


def document(result: dict[str, Any]) -> str:
    """One line a field, long lists included."""
    return "{\n" + ",\n".join(f' "{name}": {json.dumps(value)}' for name, value in result.items()) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=512, help=f"a multiple of {TASKS}")
    parser.add_argument("--concurrent", type=int, default=512)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--think", type=float, default=0.0, help="seconds that the model takes for an answer")
    parser.add_argument("--runners", default="server,harbor")
    parser.add_argument("--output", type=Path, help="a JSON file")
    parser.add_argument("flags", nargs="*", help="further flags of our server, after --")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(measure(chosen, Path(folder)))
    if chosen.output:
        chosen.output.parent.mkdir(parents=True, exist_ok=True)
        chosen.output.write_text(document(result))
    print(table(result))


if __name__ == "__main__":
    main()
