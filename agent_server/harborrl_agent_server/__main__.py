"""`python -m harborrl_agent_server`: check the settings, then serve. `... images`: the tasks' images."""

import os
import signal
import sys
from importlib.util import find_spec
from typing import NoReturn

from harborrl_agent_server.guard import Beat, guarded

NEEDED = ("harbor", "kubernetes", "fastapi", "uvicorn", "httpx", "prometheus_client")
"""Of the extra `agent-server`, without which the package itself can be installed."""


def main() -> int:
    lacking = [name for name in NEEDED if find_spec(name) is None]
    if lacking:
        said = (
            f"{', '.join(lacking)} not installed: pip install 'harborrl[agent-server]', in a checkout '.[agent-server]'"
        )
        print(f"harborrl_agent_server: {said}", file=sys.stderr)  # noqa: T201 - the one line that an operator reads
        return 64
    if sys.argv[1:2] == ["images"]:
        from harborrl_agent_server.task_images import command  # noqa: PLC0415 - no server needs it

        return command.main(sys.argv[2:])
    # As process 1 of its container it would not hear SIGTERM without a handler, and what follows takes seconds to
    # import: a pod deleted in that moment would stay for the whole of its grace period, which outlasts a trial.
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, _leave)
    return guarded(serve) if os.getpid() == 1 else serve(lambda: None)


def serve(beat: Beat) -> int:
    from harborrl_agent_server.errors import StartupError  # noqa: PLC0415 - as above
    from harborrl_agent_server.serve import run  # noqa: PLC0415 - as above
    from harborrl_agent_server.settings import settings_from  # noqa: PLC0415 - as above

    try:
        settings = settings_from(sys.argv[1:])
        if settings.workers > 1 and settings.worker is None:
            from harborrl_agent_server.dispatch.serve import dispatch  # noqa: PLC0415 - as above

            return dispatch(settings, sys.argv[1:], dict(os.environ), beat)
        return run(settings, beat=beat)
    except StartupError as error:
        print(f"harborrl_agent_server: {error}", file=sys.stderr)  # noqa: T201 - the one line that an operator reads
        return 64


def _leave(*_: object) -> NoReturn:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
