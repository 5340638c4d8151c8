"""The answers of several workers as the answer of one server. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from harborrl_agent_server.admission import Slots
from harborrl_agent_server.contract import FlushResponse, Health, Warm
from harborrl_agent_server.metrics import REFUSED

WORST = frozenset({"harborrl_agent_loop_lag_seconds"})
"""Of these the largest value speaks for all."""

OF_THE_DISPATCHER = WORST | {REFUSED}
"""What it measures itself: all goes through it, and the gateway's port is its own."""

OF_THE_POD = frozenset({"harborrl_agent_capacity"})
"""Each worker says the whole."""

SUMS = frozenset({"counter", "histogram", "summary"})
"""Types of what only grows while a process lives."""

ORDER = ("draining", "degraded", "ok")

UNKNOWN = "unknown yet"
"""Of network policies, until a server has tried them: another worker's finding holds for its neighbours too."""


def health(
    answers: Sequence[Health], *, slots: Slots, workers: int, instance: str, outcomes: Mapping[str, int]
) -> Health:
    """Of the workers that answered; there is at least one. One that did not is a degradation.

    `slots` are the pod's: they know what a worker holds that does not answer. `outcomes` are of all lives.
    """
    said = status([answer.status for answer in answers], is_whole=len(answers) == workers)
    oldest = [answer.oldest_trial_s for answer in answers if answer.oldest_trial_s is not None]
    return answers[0].model_copy(
        update={
            "status": said,
            "instance": instance,
            "in_flight": slots.taken,
            "queued": slots.queued,
            "free": slots.free,
            "oldest_trial_s": max(oldest, default=None),
            "outcomes": dict(outcomes),
            "network_policies": network_policies([answer.network_policies for answer in answers]),
            "warm": warm([answer.warm for answer in answers]),
        }
    )


def status(said: Iterable[str], *, is_whole: bool) -> str:
    """The worst of what the workers say of themselves; a silent one is a degradation."""
    every = {*said, "ok" if is_whole else "degraded"}
    return next(status for status in ORDER if status in every)


def network_policies(findings: Iterable[str]) -> str:
    """One finding; several where workers found different things."""
    every = list(dict.fromkeys(findings))
    return "; ".join(one for one in every if one != UNKNOWN) or UNKNOWN


def warm(every: Iterable[Warm]) -> Warm:
    total: Counter[str] = Counter()
    for one in every:
        total.update(one.model_dump())
    return Warm(**total)


def outcomes(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    return dict(Counter(one) + Counter(other))


def flushed(ids: list[str], answers: Iterable[FlushResponse]) -> FlushResponse:
    every = list(answers)
    return FlushResponse(
        cancelled=sum(answer.cancelled for answer in every),
        pending=sum(answer.pending for answer in every),
        ids=sorted(set(ids)),
        unreached=sum(answer.unreached for answer in every),
    )


def families(page: str) -> list[Metric]:
    return list(text_string_to_metric_families(page))


def lasts(family: Metric) -> bool:
    """Whether it tells of the past, which a worker's death does not undo."""
    return family.type in SUMS or family.name.endswith("_created")


def is_own(family: Metric) -> bool:
    return family.name in OF_THE_DISPATCHER


def metrics(pages: Iterable[Sequence[Metric]]) -> list[Metric]:
    """Samples of one name and the same labels added up, or the largest where a sum would say nothing."""
    found: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for page in pages:
        for family in page:
            found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            known = values.setdefault(family.name, {})
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                known[key] = together(family.name, sample.name, known.get(key), sample.value)
    for name, family in found.items():
        for (sample_name, labels), value in values[name].items():
            family.add_sample(sample_name, dict(labels), value)
    return list(found.values())


def together(family: str, sample: str, known: float | None, value: float) -> float:
    if known is None:
        return value
    if sample.endswith("_created"):
        return min(known, value)
    says_the_same = family in WORST | OF_THE_POD or family.endswith("_info")
    return max(known, value) if says_the_same else known + value
