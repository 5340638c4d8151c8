"""`python -m harborrl_operator`: one operator process, until SIGTERM."""

import signal
import sys
from typing import NoReturn


def run() -> int:
    # Process 1 of a container hears SIGTERM through a handler alone, and kopf takes seconds to import.
    signal.signal(signal.SIGTERM, _leave)
    from harborrl_operator.process import main  # noqa: PLC0415 - as above

    return main()


def _leave(*_: object) -> NoReturn:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(run())
