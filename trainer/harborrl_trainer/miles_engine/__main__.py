"""`python3 -m harborrl_trainer.miles_engine PLAN`: the driver of an incarnation, in Miles' container."""

import sys
import traceback
from pathlib import Path

from harborrl_trainer.failures import failure_of
from harborrl_trainer.miles_engine.driver import drive
from harborrl_trainer.miles_engine.plan import load


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python3 -m harborrl_trainer.miles_engine PLAN\n")
        return 64
    try:
        return drive(load(Path(arguments[0])))
    except Exception as error:  # noqa: BLE001 - the outer wall: every failure becomes an exit code and a sentence
        failure = failure_of(error)
        if not failure.known:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.write(failure.sentence + "\n")
        return failure.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
