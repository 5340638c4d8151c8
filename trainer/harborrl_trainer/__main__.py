"""`python -m harborrl_trainer run | preflight | supervise | argv`.

The job document is read before anything heavy is imported, so that a wrong one is refused in a second. Exit codes are
those of docs/contracts.md; the last line on standard error is one sentence.
"""

import argparse
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, override

from harborrl_trainer.errors import ConfigurationError, StorageError
from harborrl_trainer.failures import failure_of
from harborrl_trainer.job import DEFAULT_PATH, JobDocument, read_job

if TYPE_CHECKING:
    from harborrl_trainer.launch.argv_command import Dry

type Engine = Callable[[JobDocument, int, int], int]
"""Job, attempt and incarnation in, exit code out."""
ENGINES = {"miles": "harborrl_trainer.miles_plan.run", "native": "harborrl_trainer.native.run"}
"""Module of each engine; its `main` is an Engine."""


class _Parser(argparse.ArgumentParser):
    @override
    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(f"{self.prog}: {message}; see {self.prog} --help")


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    if os.getpid() == 1:
        # The kernel gives process 1 of a container no default for SIGTERM, and what a command imports takes seconds:
        # the pod would stay for its whole grace period, and with it the GPUs of its gang.
        signal.signal(signal.SIGTERM, _leave)
    try:
        options = _parser().parse_args(arguments)
        if options.command == "argv":
            from harborrl_trainer.launch.argv_command import argv

            return _print_argv(argv(options.preset, options.file, lines=options.lines))
        job = read_job(getattr(options, "config", None) or Path(environment.get("HARBORRL_JOB", DEFAULT_PATH)))
        return _dispatch(options, job, environment)
    except Exception as error:  # noqa: BLE001 - the outer wall: every failure becomes an exit code and a sentence
        failure = failure_of(error)
        if not failure.known:
            traceback.print_exc()
        if sys.stdout is not None:
            sys.stdout.flush()
        sys.stderr.write(failure.sentence + "\n")
        sys.stderr.flush()
        return failure.code_for(next(iter(arguments), ""))


def _leave(*_: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)


def _print_argv(made: "Dry") -> int:
    try:
        sys.stdout.write(f"{made.whole}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # whoever read us has seen enough; the interpreter would flush into it again at its end
        return 0
    except OSError as error:
        sys.stdout = None
        where = f"standard output: cannot be written ({error.strerror}), what is there is not whole"
        raise StorageError(f"{where}; make room where it goes") from error
    sys.stderr.writelines(f"{line}\n" for line in made.said)
    return 0


def _dispatch(options: argparse.Namespace, job: JobDocument, environment: Mapping[str, str]) -> int:
    match options.command:
        case "preflight":
            from harborrl_trainer.preflight.run import preflight

            return preflight(job, options.result)
        case "supervise":
            from harborrl_trainer.supervisor.run import supervise

            return supervise(job, _attempt(job, environment))
        case _:
            _write_line_by_line()
            attempt = options.attempt or _attempt(job, environment)
            return _run(job, attempt, options.incarnation or _next_incarnation(job, attempt))


def _next_incarnation(job: JobDocument, attempt: int) -> int:
    """Of a run that nobody supervises: each start is an incarnation of its own."""
    from harborrl_trainer.layout import RunLayout
    from harborrl_trainer.supervisor.start import claim_next

    return claim_next(RunLayout.of(job), attempt).incarnation


def _run(job: JobDocument, attempt: int, incarnation: int) -> int:
    module = ENGINES.get(job.engine)
    if module is None:
        raise ConfigurationError(
            f"trainer.engine: '{job.engine}' is not part of this version; set trainer.engine: native"
        )
    try:
        train: Engine = import_module(module).main
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"trainer.engine: '{job.engine}' needs module {error.name}, which this image lacks; "
            "set trainer.image to the trainer image of this version"
        ) from error
    return train(job, attempt, incarnation)


def _write_line_by_line() -> None:
    """Ray collects output through a file, for which Python holds whole pages back: a killed driver would be mute."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def _attempt(job: JobDocument, environment: Mapping[str, str]) -> int:
    text = environment.get("HARBORRL_ATTEMPT", str(job.attempt))
    if not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(f"HARBORRL_ATTEMPT: '{text}' is not a number from 1 on; let the operator set it")
    return int(text)


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 on")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="harborrl_trainer", description="What runs in the pods of a HarborRLJob's trainer.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    run = commands.add_parser("run", help="the Ray driver: train until the last rollout")
    run.add_argument("--config", type=Path, metavar="FILE", help="the job document; default $HARBORRL_JOB")
    run.add_argument("--attempt", type=_number, metavar="N", help="number of the RayCluster; default $HARBORRL_ATTEMPT")
    run.add_argument(
        "--incarnation", type=_number, metavar="M", help="number of the head pod's life; default the next free one"
    )
    preflight = commands.add_parser("preflight", help="check the job before a GPU is held")
    preflight.add_argument("--result", type=Path, default=Path("/dev/termination-log"), help="file for the JSON result")
    argv = commands.add_parser("argv", help="print what Miles would be started with, and start nothing")
    source = argv.add_mutually_exclusive_group(required=True)
    source.add_argument("--preset", metavar="NAME", help="a preset in its documented shape")
    source.add_argument("--file", type=Path, help="a job document (JSON) or a HarborRLJob (YAML)")
    argv.add_argument("--lines", action="store_true", help="one variable or flag a line instead of JSON, for diff")
    commands.add_parser("supervise", help="the sidecar: submit the driver once, follow it, report progress")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
