"""What kubelet and Prometheus ask: /healthz, /readyz and /metrics, of leader and spare alike."""

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from harborrl_operator import metrics
from harborrl_operator.elector import Elector
from harborrl_operator.liveness import LONGEST_SILENCE_SECONDS
from harborrl_operator.runtime import Runtime

STALE_SECONDS = 30.0
"""A process to which the API server has not answered for this long is of no use to anybody."""


class Probes:
    """Answers from the first moment on, before anybody leads."""

    def __init__(self, elector: Elector, runtime: Runtime) -> None:
        self._elector, self._runtime = elector, runtime
        self._server: web.AppRunner | None = None

    async def start(self, port: int) -> None:
        app = web.Application()
        answers = {"/healthz": self._healthz, "/readyz": self._readyz, "/metrics": self._metrics}
        app.add_routes([web.get(path, answer) for path, answer in answers.items()])
        self._server = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._server.setup()
        await web.TCPSite(self._server, "0.0.0.0", port).start()  # noqa: S104 - the kubelet probes the pod's address

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        """Whether a leader is still told what happens, and a spare still takes part in the election."""
        if self._elector.elected.is_set():
            return _told(self._runtime.fault(), "ok")
        silence = self._elector.silence()
        mute = f"the election has had no answer for {silence:.0f} s" if silence > LONGEST_SILENCE_SECONDS else None
        return _told(mute, "ok")

    async def _readyz(self, _: web.Request) -> web.Response:
        """Leader and spare are both ready: the spare to take over. The body tells them apart."""
        silence = self._elector.silence()
        if silence > STALE_SECONDS or not self._elector.has_looked:
            return _told(f"no answer from the API server for {silence:.0f} s", "")
        if self._elector.seconds_left() > 0:
            return _told(self._runtime.fault(), "leader")
        return _told(None, f"spare of {self._elector.holder or 'nobody yet'}")

    async def _metrics(self, _: web.Request) -> web.Response:
        leads = self._elector.seconds_left() > 0
        metrics.LEADER.set(int(leads))
        if leads:
            self._runtime.publish()
        return web.Response(body=generate_latest(metrics.REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _told(fault: str | None, well: str) -> web.Response:
    return web.Response(text=fault or well, status=503 if fault else 200)
