"""The metrics of a server whose workers come and go."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Metric, generate_latest

from harborrl_agent_server.dispatch import merging
from harborrl_agent_server.dispatch.asking import Answer
from harborrl_agent_server.dispatch.ledger import Ledger
from harborrl_agent_server.metrics import Metrics


class Counters:
    def __init__(self, own: Metrics) -> None:
        """`own`: of the dispatcher, whose event loop everything goes through."""
        self._own = own
        self._ledger: Ledger[Sequence[Metric]] = Ledger((), lambda one, other: merging.metrics([one, other]))
        self._now: dict[int, Sequence[Metric]] = {}

    def page(self, answers: Sequence[Answer]) -> bytes:
        """What a worker that answers not in time holds is what it held; one that has gone holds nothing."""
        for answer in answers:
            if answer.text is not None:
                families = merging.families(answer.text)
                self._ledger.heard(answer.worker, answer.life, [one for one in families if merging.lasts(one)])
                self._now[answer.worker] = [one for one in families if not merging.lasts(one)]
            elif answer.is_gone:
                self._now.pop(answer.worker, None)
        own = [one for one in merging.families(generate_latest(self._own.registry).decode()) if merging.is_own(one)]
        registry = CollectorRegistry()
        registry.register(Merged(merging.metrics([self._ledger.whole(), *self._now.values(), own])))
        return generate_latest(registry)


class Merged:
    """As prometheus_client wants what it writes."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families
