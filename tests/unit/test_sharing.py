"""Jobs that bring one agent server: what others were promised is not there, and of two at once the older one wins."""

from typing import Any

import pytest

from harborrl_operator.conditions import Truth
from harborrl_operator.constants import ConditionType, Reason
from harborrl_operator.models import HarborRLJob
from harborrl_operator.models.status import Condition, JobStatus
from harborrl_operator.observed import Observed, Surroundings
from harborrl_operator.sharing import normal_url, promised
from support import hrl

BROUGHT = hrl.BROUGHT
URL = BROUGHT["agentServer.url"]


def other(
    admitted: Truth = "True",
    reason: Reason = Reason.ADMITTED,
    changes: dict[str, Any] | None = None,
    *,
    created: str = "2026-01-01T00:00:00Z",
    name: str = "other",
    uid: str = "uid-of-other",
    **status: Any,
) -> HarborRLJob:
    condition = Condition(type=ConditionType.ADMITTED, status=admitted, reason=reason, last_transition_time="")
    job = hrl.job(BROUGHT | (changes or {}), status=JobStatus(conditions=[condition], **status), name=name)
    return HarborRLJob(job.namespace, name, uid, 1, job.spec, job.status, created_at=created)


def mine(**status: Any) -> HarborRLJob:
    return other(
        "Unknown", Reason.AWAITING_PREFLIGHT, created="2026-01-02T00:00:00Z", name="mine", uid="mine", **status
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://agents.team.svc:30000/",
        "http://AGENTS.team.svc.cluster.local:30000",
        "http://agents.team.svc.cluster.local.:30000",
        "http://agents.team:30000",
        "http://agents.team.svc.other.domain:30000//",
    ],
)
def test_one_server_has_one_name_however_it_is_spelt(url: str) -> None:
    assert normal_url(url, "research") == normal_url(URL, "elsewhere")


def test_a_bare_name_is_one_of_the_jobs_own_namespace_and_ports_are_filled_in() -> None:
    assert normal_url("http://agents", "team") == normal_url("http://agents.team.svc:80", "x")
    assert normal_url("https://agents.example.com/a", "x") == normal_url("https://agents.example.com:443/a/", "y")
    different = {
        URL,
        "http://agents.team.svc:30001",
        "http://agents.other.svc:30000",
        f"{URL}/a",
        "https://agents.team",
    }
    assert len({normal_url(url, "team") for url in different}) == len(different)


def test_admitted_jobs_on_the_same_server_are_promised_what_they_keep_in_flight() -> None:
    others = [
        other(name="a", uid="a"),
        other(changes={"trainer.extraArgs": "--rollout-batch-size 5"}, name="b", uid="b"),
        other(changes={"agentServer.url": "http://elsewhere.team.svc:30000"}, name="c", uid="c"),
    ]
    assert promised(mine(), [*others, mine()], hrl.SETTINGS) == 8 + 20


def test_the_server_of_another_job_is_shared_with_that_job() -> None:
    owner = other(name="owner", uid="o", changes={"agentServer.url": None})
    guest = other(name="guest", uid="g", changes={"agentServer.url": "http://owner-agent.research.svc:30000"})
    assert promised(guest, [owner], hrl.SETTINGS) == 8
    assert promised(owner, [guest], hrl.SETTINGS) == 0


NOT_PROMISED = [
    ("a finished job", other(finished_at=hrl.ago(5))),
    ("a suspended job", other(changes={"suspend": True})),
    ("a refused job", other("False", Reason.MODEL_NOT_FOUND)),
    ("a job that no pass has looked at", other("Unknown", Reason.NOT_STARTED)),
    ("a younger claim", other("Unknown", Reason.AWAITING_PREFLIGHT, created="2026-01-03T00:00:00Z")),
    ("an admitted job whose arguments were spoilt since", other(changes={"trainer.extraArgs": "'"})),
]


@pytest.mark.parametrize("neighbour", [case[1] for case in NOT_PROMISED], ids=[case[0] for case in NOT_PROMISED])
def test_nothing_is_promised_to(neighbour: HarborRLJob) -> None:
    assert promised(mine(), [neighbour], hrl.SETTINGS) == 0


def test_of_two_claims_at_once_exactly_one_gives_way_whoever_looks_first() -> None:
    older = other("Unknown", Reason.AWAITING_PREFLIGHT)
    assert promised(mine(), [older], hrl.SETTINGS) == 8
    assert promised(older, [mine()], hrl.SETTINGS) == 0
    twin = other("Unknown", Reason.AWAITING_PREFLIGHT, created="2026-01-02T00:00:00Z", name="twin", uid="t")
    assert [promised(mine(), [twin], hrl.SETTINGS), promised(twin, [mine()], hrl.SETTINGS)] == [0, 8]


def test_a_run_that_goes_on_stands_before_an_older_one_that_begins() -> None:
    running = mine(attempt=2)
    older = other("Unknown", Reason.AWAITING_PREFLIGHT)
    assert promised(older, [running], hrl.SETTINGS) == 8
    assert promised(running, [older], hrl.SETTINGS) == 0


def seen(job: HarborRLJob, *others: HarborRLJob, judged: HarborRLJob | None = None) -> Observed:
    """The preflight of `judged` (a promise may have changed since) has passed."""
    pod = hrl.preflight_pod(judged or job, exit_code=0, message=hrl.PASSED)
    return hrl.world(preflight_pod=pod, surroundings=Surroundings(jobs=others))


def test_a_claim_is_said_before_anything_is_taken_and_looked_at_once_more() -> None:
    job = hrl.job(BROUGHT)
    first = hrl.decide(job, seen(job))
    assert hrl.condition(first, "Admitted") == ("Unknown", "AwaitingPreflight")
    assert "RayCluster" not in [thing["kind"] for thing in first.apply]
    assert first.requeue_after == 3.0
    second = hrl.decide(hrl.then(job, first), seen(job))
    assert hrl.condition(second, "Admitted") == ("True", "Admitted")
    assert "RayCluster/quickstart-a1" in hrl.applied(second)


def test_a_neighbour_that_was_admitted_meanwhile_has_the_room_judged_again() -> None:
    job = hrl.job(BROUGHT)
    claimed = hrl.then(job, hrl.decide(job, seen(job)))
    decided = hrl.decide(claimed, seen(claimed, other()))
    assert hrl.deleted(decided) == ["Pod/quickstart-preflight"]
    assert "RayCluster" not in [thing["kind"] for thing in decided.apply]
    document = next(thing for thing in decided.apply if thing["metadata"]["name"] == "quickstart-config")
    assert '"promised": 8' in document["data"]["job.json"]


def test_a_running_attempt_is_not_told_of_its_neighbours() -> None:
    job = hrl.job(BROUGHT)
    running = hrl.running_world(job, surroundings=Surroundings(jobs=(other(),)))
    assert hrl.message(hrl.decide(job, running), "Admitted") == "All checks and the preflight passed."
