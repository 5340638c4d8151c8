"""The real mini-swe-agent, where somebody has installed it beside the tests, put into local sandboxes."""

import os
import shlex
import shutil
from pathlib import Path
from typing import override

from harborrl_agent_server.sandboxes.local import LocalSandbox

ROOT = Path(__file__).resolve().parents[2]

CALLED = os.environ.get("HARBORRL_MINI_SWE_AGENT") or str(ROOT / ".venv-mini" / "bin" / "mini-swe-agent")

PROGRAM = shutil.which(CALLED)
"""None: its tests are skipped."""

WHY = "needs mini-swe-agent: HARBORRL_MINI_SWE_AGENT=/path/to/it, or a virtual environment .venv-mini that has it"


class WithMiniSweAgent(LocalSandbox):
    @override
    async def boot(self) -> None:
        await super().boot()
        link = f"ln -sf {shlex.quote(str(PROGRAM))} /usr/local/bin/mini-swe-agent"
        await self._plain(["/bin/sh", "-c", link], limit_s=10)
