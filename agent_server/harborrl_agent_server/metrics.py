"""What `/metrics` tells. Labels come from closed sets only."""

import asyncio

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from harborrl_agent_server.contract import RunResponse

SECONDS = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)


REFUSED = "harborrl_agent_gateway_refused_connections"


class Metrics:
    """Own registry: several servers can live in one test process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.trials = Counter("harborrl_agent_trials", "Trials that ended", ["outcome"], registry=self.registry)
        self.phases = Histogram(
            "harborrl_agent_phase_seconds", "Seconds of a phase", ["phase"], buckets=SECONDS, registry=self.registry
        )
        self.in_flight = Gauge("harborrl_agent_in_flight", "Trials that hold a slot", registry=self.registry)
        self.queued = Gauge("harborrl_agent_queued", "Trials that wait for a slot", registry=self.registry)
        self.capacity = Gauge("harborrl_agent_capacity", "Slots", registry=self.registry)
        self.leaked = Counter(
            "harborrl_agent_leaked_trials",
            "Trials of which something was left when they were answered",
            registry=self.registry,
        )
        self.leftover = Gauge(
            "harborrl_agent_leftover_trials", "Trials of which something is left still", registry=self.registry
        )
        self.loop_lag = Gauge(
            "harborrl_agent_loop_lag_seconds", "How late the event loop woke up last", registry=self.registry
        )
        self._refused = Counter(
            REFUSED, "Connections to the model gateway that were one too many", ["why"], registry=self.registry
        )

    def refuse(self, why: str) -> None:
        self._refused.labels(why).inc()

    def observe(self, answer: RunResponse) -> None:
        self.trials.labels(answer.exit_status).inc()
        for phase, spent in answer.phase_seconds.items():
            self.phases.labels(phase).observe(spent)

    async def watch_loop(self, interval_s: float = 1.0) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + interval_s
            await asyncio.sleep(interval_s)
            self.loop_lag.set(max(loop.time() - due, 0.0))
