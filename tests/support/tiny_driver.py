"""What an engine owes the supervisor, and no learning: begin, dump, save when asked, leave with 75."""

import argparse
import os
import sys
import time
from pathlib import Path

from harborrl_trainer import files
from harborrl_trainer.checkpoints import begin
from harborrl_trainer.job import read_job
from harborrl_trainer.layout import RunLayout


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--incarnation", type=int, required=True)
    options = parser.parse_args()
    job = read_job(Path(os.environ["HARBORRL_JOB"]))
    start = begin(job, options.attempt, options.incarnation)
    mine = RunLayout.of(job).incarnation(options.attempt, options.incarnation)
    with (mine.traces / "drivers.txt").open("a") as stream:
        stream.write(f"{os.getpid()}\n")
    mine.rollout_file(start.first_rollout).write_bytes(b"dump")
    while not mine.stop_request.exists():
        time.sleep(0.1)
    files.replace(mine.checkpoint(start.first_rollout) / "complete.json", "{}")
    sys.stderr.write(f"saved checkpoint {start.first_rollout} and stopped as asked\n")
    return 75


if __name__ == "__main__":
    sys.exit(main())
