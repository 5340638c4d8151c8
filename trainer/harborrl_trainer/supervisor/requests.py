"""What the operator asks of a running incarnation: to save and stop, or no longer to (docs/contracts.md)."""

from collections.abc import Mapping
from typing import Any

from harborrl_trainer import files
from harborrl_trainer.layout import IncarnationId, IncarnationLayout
from harborrl_trainer.supervisor import volumes
from harborrl_trainer.supervisor.cluster import Cluster, ClusterUnavailableError
from harborrl_trainer.supervisor.verdict import Driver

ASK_SECONDS = 5.0
"""Between two looks at the request: what a suspend waits for at most before its driver hears of it."""
_MARK = "request "
"""How `save-and-stop` begins when a request made it: one that a person or the pod's end made is not ours to remove."""


def wanted_stop(document: Mapping[str, Any] | None, uid: str, mine: IncarnationId) -> str | None:
    """The id of the request that asks this very incarnation to stop; None when nothing asks it to."""
    stop = document.get("stop") if document and document.get("uid") == uid else None
    if not isinstance(stop, Mapping) or (stop.get("attempt"), stop.get("incarnation")) != mine:
        return None
    return str(document.get("id", "")) if document else None


class StopRequests:
    """Carries the operator's wish to the driver, and takes it back when it is withdrawn before the driver saw it."""

    def __init__(self, cluster: Cluster, mine: IncarnationLayout, uid: str) -> None:
        self._cluster = cluster
        self._mine = mine
        self._uid = uid
        self._due = 0.0
        self._looked = False
        self.given: str | None = None
        """Id of the request that the driver was told."""
        self.trouble = ""

    async def step(self, driver: Driver, now: float) -> None:
        """Never raises: what fails is tried again at the next step."""
        if driver.ended or not driver.submitted or now < self._due:
            return
        self._due, self.trouble = now + ASK_SECONDS, ""
        try:
            wanted = wanted_stop(await self._cluster.read_request(), self._uid, self._mine.id)
            await self._recall()
            if wanted is not None and wanted != self.given:
                await volumes.call(files.replace, self._mine.stop_request, f"{_MARK}{wanted}\n")
                self.given = wanted
            elif wanted is None and self.given is not None:
                await volumes.call(self._mine.stop_request.unlink, missing_ok=True)
                self.given = None
        except ClusterUnavailableError as error:
            self.trouble = f"request not read: {error}"
        except OSError as error:
            self.trouble = f"{self._mine.stop_request}: {error.strerror or 'the volume does not answer'}"

    async def _recall(self) -> None:
        """What a supervisor that died before us has told the driver."""
        if self._looked:
            return
        try:
            text = await volumes.call(self._mine.stop_request.read_text, encoding="utf-8")
        except FileNotFoundError:
            text = ""
        if text.startswith(_MARK):
            self.given = text.removeprefix(_MARK).strip()
        self._looked = True
