"""`python -m harborrl_agent_server`: check the settings, then serve."""

import sys

from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.serve import run
from harborrl_agent_server.settings import settings_from


def main() -> int:
    try:
        return run(settings_from(sys.argv[1:]))
    except StartupError as error:
        print(f"harborrl_agent_server: {error}", file=sys.stderr)  # noqa: T201 - the one line that an operator reads
        return 64


if __name__ == "__main__":
    sys.exit(main())
