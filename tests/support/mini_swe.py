"""The real mini-swe-agent, in the versions that the tools bundle holds, put into local sandboxes."""

import os
import shlex
import shutil
from pathlib import Path
from typing import override

from harborrl_agent_server.sandboxes.local import LocalSandbox

ROOT = Path(__file__).resolve().parents[2]

CALLED = os.environ.get("HARBORRL_MINI_SWE_AGENT") or str(ROOT / ".venv-mini" / "bin" / "mini-swe-agent")

WHY = (
    "needs mini-swe-agent on the file system of /, which is all that a local sandbox sees: `make .venv-mini/ready`, or "
    "HARBORRL_MINI_SWE_AGENT=/path/to/it"
)


def seen_by_sandboxes(called: str) -> str | None:
    """The program's path, unless it is missing or lies where a local sandbox has a mount of its own or none."""
    program = shutil.which(called)
    if program is None or Path(program).stat().st_dev != Path("/").stat().st_dev:
        return None
    return None if Path(program).is_relative_to("/tmp") else program  # noqa: S108 - the sandbox has its own


PROGRAM = seen_by_sandboxes(CALLED)
"""None: its tests are skipped."""


class WithMiniSweAgent(LocalSandbox):
    @override
    async def boot(self) -> None:
        await super().boot()
        link = f"ln -sf {shlex.quote(str(PROGRAM))} /usr/local/bin/mini-swe-agent"
        await self._plain(["/bin/sh", "-c", link], limit_s=10)


FLOOD = """#!/usr/bin/env python3
import os, sys, urllib.request
url = os.environ["OPENAI_BASE_URL"]
body = b'{"messages": [{"role": "user", "content": "hello"}]}'
urllib.request.urlopen(urllib.request.Request(url + "/chat/completions", body)).read()
print(url, "x" * 9_000_000, url)
with open(sys.argv[sys.argv.index("-o") + 1], "w") as file:
    file.write(url + "[" * 100_000)
"""


class FloodsItsOutput(LocalSandbox):
    """A program of its name whose output is long and whose trajectory is none; both tell the token."""

    @override
    async def boot(self) -> None:
        await super().boot()
        await self._write("/usr/local/bin/mini-swe-agent", FLOOD.encode())
        await self._plain(["/bin/sh", "-c", "chmod 755 /usr/local/bin/mini-swe-agent"], limit_s=10)
