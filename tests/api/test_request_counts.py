"""How many requests a job costs the API server a minute: counted, for a time would depend on the machine.

docs/operator.md states the figures. Passes are those that pace and watch ask for: when the last one has said so, for
each report of the supervisor, and for each status that the operator wrote itself.
"""

import secrets
from collections import Counter

import pytest

from harborrl_operator.clock import to_text
from harborrl_operator.cluster import Cluster
from harborrl_operator.reconcile import Reconciler
from harborrl_operator.transport import READS, Answer, Request, Send
from harborrl_trainer.supervisor.progress import WRITE_SECONDS
from support import hrl
from support.simulated_life import JOB, STAGES, Life

pytestmark = pytest.mark.api

MINUTE = 60.0


class Minute:
    """The operator of one job; what it asks of the API server since the last `clear` of `asked`."""

    def __init__(self, life: Life) -> None:
        self.asked: Counter[str] = Counter()
        self._life = life
        self._operator = Reconciler(life.cluster.through(self._counted), hrl.SETTINGS, life.now)

    def _counted(self, send: Send) -> Send:
        async def sent(request: Request) -> Answer:
            self.asked[f"{request.verb} {request.kind}"] += 1
            return await send(request)

        return sent

    async def look(self) -> float:
        """A pass, and one more for the status that it wrote; seconds to the next."""
        while True:
            before = self.writes
            again = await self._operator.reconcile(self._life.namespace, JOB)
            assert again is not None
            if self.writes == before:
                return again

    @property
    def writes(self) -> int:
        return sum(count for asked, count in self.asked.items() if asked.split()[0] not in READS)

    @property
    def reads(self) -> int:
        return self.asked.total() - self.writes


@pytest.fixture
async def life(bare_cluster: Cluster) -> Life:
    begun = Life(bare_cluster, f"minute-{secrets.token_hex(3)}", changes={"trainer.config.numRollout": 100})
    await begun.begin()
    return begun


async def walked(life: Life, stages: int) -> Minute:
    minute = Minute(life)
    for stage in STAGES[:stages]:
        await stage.act(life)
        await minute.look()
        assert await stage.reached(life), stage.name
    minute.asked.clear()
    return minute


async def quiet_minute(life: Life, minute: Minute) -> None:
    until = life.passed + MINUTE
    while life.passed < until:
        life.passed += await minute.look()


@pytest.mark.parametrize(("stages", "most_reads"), [(1, 44), (4, 24)], ids=["waits for its agent server", "trains"])
async def test_a_job_of_which_nothing_is_heard_costs_reads_alone(life: Life, stages: int, most_reads: int) -> None:
    minute = await walked(life, stages)
    await quiet_minute(life, minute)
    assert minute.writes == 0, minute.asked
    assert 0 < minute.reads <= most_reads, minute.asked


async def test_a_job_that_reports_as_often_as_it_may_costs_a_status_a_report(life: Life) -> None:
    minute = await walked(life, 4)
    reports = int(MINUTE / WRITE_SECONDS)
    for trained in range(2, 2 + reports):
        life.passed += WRITE_SECONDS
        rollout = {"rollout.trained": trained, "rollout.collected": trained + 1, "rollout.total": 100}
        document = hrl.progress(changes={"uid": life.uid, "observedAt": to_text(life.now()), **rollout})
        await life.patch("ConfigMap", f"{JOB}-progress", {"data": {"progress": document}})
        await minute.look()
    assert minute.asked["patch HarborRLJob"] == reports, minute.asked
    assert minute.writes <= reports + 1, minute.asked  # an event says that rollouts advance
    assert minute.reads <= 144, minute.asked
