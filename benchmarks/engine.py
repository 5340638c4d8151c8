"""Trials of our server with a real engine: agent, gateway, Miles' own session server, SGLang.

`PYTHONPATH=agent_server:tests:. python benchmarks/engine.py --engine URL --sessions URL --output FILE` as root, beside
a running SGLang and `engine_trials/miles_sessions.py`. Says how trials end, what reached the engine, whether Miles
makes samples of every session, how soon the engine is free after a flush, and what each refusal of a turn looks like.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
from benchmarks.engine_trials.refusals import collected
from benchmarks.engine_trials.rollouts import Rollouts
from benchmarks.trial_load.measuring import listening, program

from support.agent_tasks import write_task

SAMPLING = {"temperature": 0.8, "top_p": 0.95, "max_tokens": 160}
ENDLESS = {"temperature": 1.0, "max_tokens": 3000, "ignore_eos": True}
TASKS = {
    "greeting": "Write hello to /app/greeting.txt.",
    "long": "Write hello to /app/greeting.txt. " + "This is said to fill the context. " * 456,
    "too-long": "Write hello to /app/greeting.txt. " + "This is said to fill the context. " * 1200,
}
"""Of a context of 4,096 tokens the second takes nearly all, and the third more than there is."""


async def measure(chosen: argparse.Namespace, folder: Path) -> dict[str, Any]:
    for name, instruction in TASKS.items():
        write_task(folder / "tasks", name, instruction=instruction)
    log = folder / "log"
    flags = ["--sandbox", "local", "--port", "0", "--max-concurrent", str(chosen.concurrent)]
    argv = ["-m", "harborrl_agent_server", *flags, "--trials-dir", str(folder / "trials")]
    with log.open("wb") as stderr:
        async with program(*argv, stderr=stderr, env={"HARBOR_TASKS_DIR": str(folder / "tasks")}) as server:
            url = await listening(log, server)
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            timeout = aiohttp.ClientTimeout(total=400)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:
                return await told(Rollouts(client, url, chosen.sessions, chosen.engine), chosen)


async def told(rollouts: Rollouts, chosen: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"concurrent": chosen.concurrent}
    await rollouts.of(8, "greeting", SAMPLING)
    for name, trials, task, extra in (
        ("usual", chosen.trials, "greeting", {}),
        ("limit of 300 tokens", 32, "greeting", {"max_seq_len": 300}),
        ("context nearly full", 32, "long", {}),
        ("context too small", 8, "too-long", {}),
    ):
        started = time.monotonic()
        result[name] = await rollouts.of(trials, task, SAMPLING, **extra)
        result[name]["seconds"] = round(time.monotonic() - started, 2)
        print(name, json.dumps(result[name])[:1500], flush=True)
    for name, through in (("flushed, through Miles", True), ("flushed, engine asked at once", False)):
        result[name] = await rollouts.flushed(32, ENDLESS, through_sessions=through)
        print(name, json.dumps(result[name])[:1500], flush=True)
    result["aborted by the engine"] = await rollouts.aborted(16, ENDLESS)
    print("aborted", json.dumps(result["aborted by the engine"])[:1500], flush=True)
    result["refusals"] = await collected(rollouts.client, chosen.sessions, chosen.engine)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", required=True, help="SGLang's URL")
    parser.add_argument("--sessions", required=True, help="URL of Miles' session server")
    parser.add_argument("--trials", type=int, default=256, help="usual ones")
    parser.add_argument("--concurrent", type=int, default=128)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        document = asyncio.run(measure(arguments, Path(temporary)))
    arguments.output.write_text(json.dumps(document, indent=1) + "\n")
