"""An exit code that is the command's own: `docker exec` also gives 1 for a daemon that is away."""

import re
from uuid import uuid4

from harborrl_agent_server.sandboxes.commands import SHELL
from harborrl_agent_server.sandboxes.streams import Sink

SEALED = 'm=$1; shift; "$@"; r=$?; printf "%s:%d;" "$m" "$r" >&2; exit $r'
"""$1: the mark; the rest: the command."""

LONGEST_CODE = 5
"""Bytes of `:255;`."""


class Seal:
    """Takes the mark with the exit code out of a command's error output and passes the rest on."""

    def __init__(self, sink: Sink) -> None:
        self.code: int | None = None
        """None: the command's end was never told."""
        self._sink = sink
        self.mark = f"harborrl-{uuid4().hex}"
        self._held = b""
        self._told = re.compile(rb"%b:(\d{1,3});" % self.mark.encode())

    def argv(self, argv: list[str]) -> list[str]:
        return [SHELL, "-c", SEALED, "harborrl", self.mark, *argv]

    def __call__(self, data: bytes) -> None:
        self._held += data
        if found := self._told.search(self._held):
            self.code = int(found[1])
            self._held = self._held[: found.start()] + self._held[found.end() :]
        if self.code is not None:
            self.close()
        elif (spare := len(self._held) - len(self.mark) - LONGEST_CODE) > 0:
            self._pass_on(spare)

    def taken_out(self, text: str | None) -> str | None:
        """A whole output without the mark, whose code is kept: for what comes as text, both outputs in one perhaps."""
        if text and (found := self._told.search(text.encode(errors="replace"))):
            self.code = int(found[1])
            return text.replace(found[0].decode(), "", 1)
        return text

    def close(self) -> None:
        """Pass on what was held back."""
        self._pass_on(len(self._held))

    def _pass_on(self, size: int) -> None:
        ready, self._held = self._held[:size], self._held[size:]
        if ready:
            self._sink(ready)
