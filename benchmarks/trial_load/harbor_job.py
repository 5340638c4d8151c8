"""Harbor's own job runner: `python -m benchmarks.trial_load.harbor_job PROBE_LOG DESCRIPTOR CONFIG`.

CONFIG is JSON with `tasks`, `folder`, `attempts`, `concurrent`, `session_url`. The job runs when a line comes in. To
the descriptor goes `ready` when it can, and `ended N` when it has, N being the trials with reward 1.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.trial_load import harbor_parts
from benchmarks.trial_load.probe import Probe
from harbor.job import Job
from harbor.models.job.config import JobConfig
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig


def config_of(asked: dict[str, Any]) -> JobConfig:
    parts = harbor_parts.__name__
    return JobConfig(
        jobs_dir=Path(asked["folder"]),
        job_name="job",
        quiet=True,
        n_attempts=asked["attempts"],
        n_concurrent_trials=asked["concurrent"],
        environment=EnvironmentConfig(import_path=f"{parts}:JobSandbox"),
        agents=[AgentConfig(import_path=f"{parts}:ScriptedAgent", kwargs={"session_url": asked["session_url"]})],
        tasks=[TaskConfig(path=Path(task)) for task in asked["tasks"]],
    )


async def work(argv: Sequence[str]) -> None:
    said = int(argv[1])
    Probe(Path(argv[0]))()
    job = await Job.create(config_of(json.loads(argv[2])))
    os.write(said, b"ready\n")
    await asyncio.to_thread(sys.stdin.readline)
    result = await job.run()
    solved = sum(len(one.reward_stats.get("reward", {}).get(1.0, ())) for one in result.stats.evals.values())
    os.write(said, b"ended %d\n" % solved)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(work(sys.argv[1:]))
