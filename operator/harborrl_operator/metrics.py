"""Prometheus metrics of the operator itself."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

PASSES = Counter("harborrl_reconciles", "Passes over jobs by result.", ["result"], registry=REGISTRY)
SECONDS = Histogram("harborrl_reconcile_seconds", "Duration of a pass.", registry=REGISTRY)
QUEUED = Gauge("harborrl_queue_length", "Jobs that wait for a pass, timers included.", registry=REGISTRY)
WATCH_AGE = Gauge(
    "harborrl_watch_age_seconds", "Seconds since our heartbeat was last seen in the watch.", registry=REGISTRY
)
SWEPT = Counter(
    "harborrl_swept_anchors",
    "Sandbox anchors removed because their job or their agent server was gone.",
    registry=REGISTRY,
)
