"""The answers of several workers as the answer of one server. Pure."""

from collections.abc import Iterable, Sequence

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from harborrl_agent_server.contract import FlushResponse, Health

WORST = frozenset({"harborrl_agent_loop_lag_seconds"})
"""Of these the largest value speaks for all."""

OF_THE_POD = frozenset({"harborrl_agent_capacity"})
"""Each worker says the whole."""

ORDER = ("draining", "degraded", "ok")


def health(answers: Sequence[Health], *, workers: int, instance: str) -> Health:
    """Of the workers that answered; there is at least one. One that did not is a degradation."""
    first = answers[0]
    said = {answer.status for answer in answers} | ({"degraded"} if len(answers) < workers else set())
    taken, queued = sum(answer.in_flight for answer in answers), sum(answer.queued for answer in answers)
    oldest = [answer.oldest_trial_s for answer in answers if answer.oldest_trial_s is not None]
    outcomes: dict[str, int] = {}
    for answer in answers:
        for outcome, number in answer.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + number
    return first.model_copy(
        update={
            "status": next(status for status in ORDER if status in said),
            "instance": instance,
            "in_flight": taken,
            "queued": queued,
            "free": max(first.capacity - taken - queued, 0),
            "oldest_trial_s": max(oldest, default=None),
            "outcomes": outcomes,
        }
    )


def flushed(ids: list[str], answers: Iterable[FlushResponse]) -> FlushResponse:
    every = list(answers)
    return FlushResponse(
        cancelled=sum(answer.cancelled for answer in every),
        pending=sum(answer.pending for answer in every),
        ids=sorted(set(ids)),
        unreached=sum(answer.unreached for answer in every),
    )


def metrics(pages: Iterable[str]) -> list[Metric]:
    """Samples of one name and the same labels added up, or the largest where a sum would say nothing."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for page in pages:
        for family in text_string_to_metric_families(page):
            families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            known = values.setdefault(family.name, {})
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                known[key] = together(family.name, sample.name, known.get(key), sample.value)
    for name, family in families.items():
        for (sample_name, labels), value in values[name].items():
            family.add_sample(sample_name, dict(labels), value)
    return list(families.values())


def together(family: str, sample: str, known: float | None, value: float) -> float:
    if known is None:
        return value
    if sample.endswith("_created"):
        return min(known, value)
    return max(known, value) if family in WORST | OF_THE_POD else known + value
