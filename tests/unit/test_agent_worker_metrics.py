"""The metrics of several workers as those of one server, also when workers hang, die and come again."""

from collections import Counter
from collections.abc import Mapping

from prometheus_client import Info, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from harborrl_agent_server.contract import ExitStatus, RunResponse
from harborrl_agent_server.dispatch import merging
from harborrl_agent_server.dispatch.asking import Answer
from harborrl_agent_server.dispatch.counters import Counters
from harborrl_agent_server.dispatch.ledger import Ledger
from harborrl_agent_server.metrics import Metrics


def worker(*, trials: int = 0, in_flight: int = 0, lag: float = 0.0, build: str = "") -> str:
    """The page of one worker's process."""
    metrics = Metrics()
    metrics.capacity.set(8)
    metrics.in_flight.set(in_flight)
    metrics.loop_lag.set(lag)
    if build:
        Info("harborrl_agent_build", "Of what it is made", registry=metrics.registry).info({"version": build})
    for _ in range(trials):
        answer = RunResponse(exit_status=ExitStatus.SUBMITTED, infra_failure=False, phase_seconds={"run": 2.0})
        metrics.observe(answer)
    return generate_latest(metrics.registry).decode()


def values(page: bytes) -> Mapping[str, float]:
    """By name of a sample, and by its label where it has one."""
    found = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            labels = ",".join(sorted(sample.labels.values()))
            found[f"{sample.name} {labels}".strip()] = sample.value
    return found


def counters(lag: float = 0.0) -> Counters:
    own = Metrics()
    own.loop_lag.set(lag)
    return Counters(own)


def said(index: int, text: str | None, *, life: int = 1, is_gone: bool = False) -> Answer:
    return Answer(index, life, text, is_gone)


def test_counters_gauges_and_histograms_are_added_and_what_each_says_of_the_pod_is_said_once() -> None:
    pages = [worker(trials=1, in_flight=2, lag=lag, build="1") for lag in (0.5, 0.25)]
    found = values(counters().page([said(index, page) for index, page in enumerate(pages)]))
    assert (found["harborrl_agent_trials_total Submitted"], found["harborrl_agent_in_flight"]) == (2, 4)
    assert (found["harborrl_agent_capacity"], found["harborrl_agent_loop_lag_seconds"]) == (8, 0.5)
    assert found["harborrl_agent_build_info 1"] == 1
    assert (found["harborrl_agent_phase_seconds_sum run"], found["harborrl_agent_phase_seconds_count run"]) == (4, 2)
    buckets = {bound: found[f"harborrl_agent_phase_seconds_bucket {bound},run"] for bound in ("1.0", "3.0", "+Inf")}
    assert buckets == {"1.0": 0, "3.0": 2, "+Inf": 2}


def test_no_family_is_lost_or_doubled_when_pages_are_merged() -> None:
    page = worker(trials=1)
    merged = counters().page([said(0, page), said(1, page)]).decode()
    for line in ("# TYPE", "# HELP"):
        heads = Counter(text for text in merged.splitlines() if text.startswith(line))
        assert heads == Counter(text for text in page.splitlines() if text.startswith(line))
    assert set(values(merged.encode())) == set(values(page.encode()))


def test_the_dispatchers_own_lag_counts_and_nothing_else_of_it() -> None:
    found = values(counters(lag=3.0).page([said(0, worker(trials=1, lag=1.0))]))
    assert (found["harborrl_agent_loop_lag_seconds"], found["harborrl_agent_capacity"]) == (3.0, 8)


def test_a_counter_does_not_fall_when_a_worker_dies_and_comes_again() -> None:
    """A fall is a new beginning for Prometheus: everything that the others have counted would count twice."""
    server, other = counters(), said(1, worker(trials=10))
    seen = [
        values(server.page([one, other]))["harborrl_agent_trials_total Submitted"]
        for one in (
            said(0, worker(trials=5)),
            said(0, None, is_gone=True),
            said(0, worker(), life=2),
            said(0, worker(trials=2), life=2),
            said(0, worker(trials=1), life=3),
        )
    ]
    assert seen == [15, 15, 15, 17, 18]


def test_what_a_hanging_worker_holds_is_still_held_and_what_a_dead_one_held_is_not() -> None:
    server, other = counters(), said(1, worker(in_flight=1))
    held = [
        values(server.page([one, other]))["harborrl_agent_in_flight"]
        for one in (said(0, worker(in_flight=4)), said(0, None), said(0, None, is_gone=True))
    ]
    assert held == [5, 5, 1]


def test_a_late_word_of_a_dead_worker_is_not_counted_again() -> None:
    ledger: Ledger[Mapping[str, int]] = Ledger({}, merging.outcomes)
    for life, trials in ((1, 3), (2, 1), (1, 2), (2, 2)):
        ledger.heard(0, life, {"Submitted": trials})
    ledger.heard(1, 1, {"Aborted": 1})
    assert ledger.whole() == {"Submitted": 5, "Aborted": 1}
