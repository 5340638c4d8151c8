"""`python -m harborrl_trainer.preflight.question DIRECTORY`: our half of a Miles container, and what is asked there.

Runs in our image, as an init container of the preflight pod; the container beside the preflight, of Miles' own image,
answers (`harborrl_trainer.miles_engine.parser_preflight`).
"""

import os
import sys
from pathlib import Path

from harborrl_trainer import files
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.failures import failure_of
from harborrl_trainer.job import DEFAULT_PATH, JobDocument, read_job
from harborrl_trainer.launch import launch
from harborrl_trainer.launch.environment import CHECKOUTS
from harborrl_trainer.launch.seam import Start
from harborrl_trainer.layout import RunLayout
from harborrl_trainer.miles_engine import asked
from harborrl_trainer.miles_engine.asked import Asked
from harborrl_trainer.miles_engine.export import export
from harborrl_trainer.miles_plan.planning import MakeLaunch


def write_question(job: JobDocument, target: Path, make: MakeLaunch = launch) -> Path:
    """The first incarnation's launch. Its files go below `target`, since Miles' checks open them."""
    export(target)
    mine = RunLayout.of(job).incarnation(1, 1)
    place = target / "launch"
    start = Start(1, 1, traces=mine.traces, checkpoints=mine.checkpoints, files=place, code=target)
    question = Asked()
    try:
        made = make(job, start)
        question = Asked(made.argv, made.env, CHECKOUTS, job.config.miles_src_commit)
        for path, text in made.files.items():
            files.replace(Path(path), text)
    except ConfigurationError as error:
        sys.stdout.write(f"the arguments cannot be made, which the preflight tells: {error}\n")
    files.replace(target / asked.NAME, asked.dump(question))
    return target / asked.NAME


def main(arguments: list[str]) -> int:
    try:
        job = read_job(Path(os.environ.get("HARBORRL_JOB", DEFAULT_PATH)))
        sys.stdout.write(f"asked in {write_question(job, Path(arguments[0]))}\n")
    except Exception as error:  # noqa: BLE001 - the outer wall: every failure becomes an exit code and a sentence
        failure = failure_of(error)
        sys.stderr.write(failure.sentence + "\n")
        return failure.code_for("preflight")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
