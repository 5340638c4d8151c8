"""The proof that the cluster enforces NetworkPolicies: two short-lived pods give it once, while trials run already.

Nobody waits for it but tasks whose network is restricted.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from harborrl_agent_server.bounded import alone
from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.probe import Finding, Proof

LOG = logging.getLogger(__name__)

UNPROVEN_SECONDS = 60.0
"""How long a try that proved nothing stands before a restricted task begins another: a quota may be free then."""


Probe = Callable[[str], Coroutine[Any, Any, Finding]]
"""One try with pods of an image; never raises but for cancellation, and leaves nothing."""


class Enforcement:
    """The newest finding, and the try that is under way."""

    def __init__(self, probe: Probe, clock: Callable[[], float], *, ignored: bool = False) -> None:
        self._probe = probe
        self._clock = clock
        self._ignored = ignored
        """Told to run restricted tasks whatever is found: nothing is tried then."""
        self.finding: Finding | None = None
        self._until = float("inf")
        self._trying: asyncio.Task[None] | None = None

    def begin(self, image: str) -> None:
        """Nobody has to wait for it."""
        if self._trying is None and not self._ignored and self._is_open():
            self._trying = alone(self._try(image))

    def settle(self, finding: Finding) -> None:
        """For good: no try can find anything else."""
        self.finding = finding

    async def assured(self, image: str) -> None:
        """Returns for a task whose network is restricted when it will be; raises `SandboxStartError` otherwise."""
        if self._ignored:
            return
        self.begin(image)
        if self._trying is not None:
            await asyncio.shield(self._trying)
        if self.finding is None or self.finding.proof is not Proof.ENFORCED:
            why = self.finding.refusal() if self.finding else "the server is ending"
            raise SandboxStartError("NetworkNotEnforced", why)

    async def close(self) -> None:
        if self._trying is not None:
            self._trying.cancel()
            await asyncio.gather(self._trying, return_exceptions=True)

    def state(self) -> str:
        """For `/health`."""
        if self._ignored:
            return "not checked, as told"
        if self.finding is None:
            return "unknown yet"
        return f"{self.finding.proof.value}: {self.finding.message}"

    def _is_open(self) -> bool:
        return self.finding is None or self._clock() >= self._until

    async def _try(self, image: str) -> None:
        try:
            self.finding = await self._probe(image)
        finally:
            self._trying = None
        unproven = self.finding.proof is Proof.UNPROVEN
        self._until = self._clock() + UNPROVEN_SECONDS if unproven else float("inf")
        tell = LOG.info if self.finding.proof is Proof.ENFORCED else LOG.warning
        tell("NetworkPolicies of sandboxes are %s", self.state())
