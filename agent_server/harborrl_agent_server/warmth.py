"""How sandboxes were started and how many wait: what a provider that keeps some ready tells of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, override, runtime_checkable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


@dataclass(frozen=True)
class Warmth:
    ready: int = 0
    """Sandboxes that wait for a trial."""
    starting: int = 0
    """Those that are being made to wait."""
    warm_starts: int = 0
    """Sandboxes of trials that ran when they were asked for, since the server began."""
    cold_starts: int = 0
    """The others."""


@runtime_checkable
class KeepsWarm(Protocol):
    """A provider that can have sandboxes ready before a trial asks."""

    def warmth(self) -> Warmth: ...

    async def cool(self) -> None:
        """Remove what waits, and keep nothing ready any more: this server takes no new trials."""


class WarmthCollector(Collector):
    """Read when it is scraped: what it tells of is counted where it happens."""

    def __init__(self, provider: KeepsWarm) -> None:
        self._provider = provider

    @override
    def collect(self) -> Iterator[Metric]:
        warmth = self._provider.warmth()
        waiting = GaugeMetricFamily(
            "harborrl_agent_warm_sandboxes", "Sandboxes that wait for a trial, or are made to", labels=["state"]
        )
        waiting.add_metric(["ready"], warmth.ready)
        waiting.add_metric(["starting"], warmth.starting)
        starts = CounterMetricFamily(
            "harborrl_agent_sandbox_starts", "Sandboxes that trials asked for", labels=["start"]
        )
        starts.add_metric(["warm"], warmth.warm_starts)
        starts.add_metric(["cold"], warmth.cold_starts)
        yield from (waiting, starts)
