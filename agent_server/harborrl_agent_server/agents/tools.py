"""Programs that an agent needs in its sandbox: in the image, or in the tools bundle that is mounted beside it.

Nothing is ever installed during a trial: without a network it cannot be, and with one it makes the network a part of
every trial.
"""

import shlex
from typing import Literal

from harbor.environments.base import BaseEnvironment

from harborrl_agent_server.errors import SandboxStartError

BUNDLE = "/opt/harborrl-tools"
"""Where the tools bundle is mounted, read-only."""

Part = Literal["terminal", "all"]
"""`terminal`: tmux and bash, 27 MB. `all`: Python and mini-swe-agent besides, 261 MB in 9,000 files."""

FIND = """for tool in {names}; do
  command -v "$tool" >/dev/null 2>&1 && continue
  if [ -x {bundle}/bin/"$tool" ]; then
    for place in /usr/local/bin /usr/bin /bin; do
      ln -s {bundle}/bin/"$tool" "$place/$tool" 2>/dev/null && break
    done
  fi
  command -v "$tool" >/dev/null 2>&1 || {{ echo "$tool"; exit 1; }}
done"""
"""A link, not a longer PATH: a login shell makes its PATH anew."""


async def need(environment: BaseEnvironment, agent: str, *names: str) -> None:
    """Every program is on PATH when this returns; raises `SandboxStartError`, for no policy can be to blame."""
    script = FIND.format(names=shlex.join(names), bundle=BUNDLE)
    result = await environment.exec(script, timeout_sec=30, user="root")
    if result.return_code:
        missing = (result.stdout or "").strip() or ", ".join(names)
        raise SandboxStartError(
            "ToolMissing",
            f"{agent} needs {missing} in the sandbox: add it to the task's image (--sandbox local: in /usr/local/bin "
            f"of this machine, or on the task's PATH), or mount the tools at {BUNDLE}",
        )
