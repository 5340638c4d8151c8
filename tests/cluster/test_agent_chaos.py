"""Two hundred trials on the real cluster while sandboxes, server, sessions and API server fail under them.

Sandboxes are real pods, and the API server that goes away is the dev cluster's own. The server is a process of this
machine with the cluster's kubeconfig: it is killed and comes back as a container does, and runs the code of this tree.
One run for all tests. `HARBORRL_CHAOS_SEED` draws the same faults again.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from support.chaos import Asked, Chaos, End, played
from support.chaos_faults import has_own_api_server
from support.chaos_model import WELL, Fate
from support.kubectl import Kubectl, operator_running
from support.workspace import MARK

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

TRIALS = int(os.environ.get("HARBORRL_CHAOS_TRIALS", "200"))
SLOTS = int(os.environ.get("HARBORRL_CHAOS_SLOTS", "24"))
IMAGE = os.environ.get("HARBORRL_TEST_SANDBOX_IMAGE", "localhost/devcluster/busybox:1")
LIVES = 3
ONCE_FOR_ALL = "networkpolicies harborrl-no-network"
"""Belongs to the namespace, not to a trial."""


@pytest.fixture(scope="module")
def chaos(kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chaos]:
    if not has_own_api_server():
        pytest.skip("stops the API server: on a cluster that `devcluster up` made")
    seed = int(os.environ.get("HARBORRL_CHAOS_SEED", uuid4().int % 100_000))
    namespace = f"hrl-chaos-{uuid4().hex[:6]}"
    labels = MARK | {"pod-security.kubernetes.io/enforce": "baseline"}
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
    folder: Path = tmp_path_factory.mktemp("chaos")
    sys.stderr.write(f"HARBORRL_CHAOS_SEED={seed}; logs in {folder}\n")
    try:
        whole = played(seed=seed, trials=TRIALS, slots=SLOTS, folder=folder, namespace=namespace, image=IMAGE)
        chaos = asyncio.run(whole)
        sys.stderr.write(f"{summary(chaos)}\n")
        yield chaos
    finally:
        kubectl.ok("delete", "namespace", namespace, "--timeout=180s", timeout=190)
        operator_running(kubectl)


def summary(chaos: Chaos) -> str:
    ends = Counter(asked.status or asked.end.value for asked in chaos.record.asked)
    return f"{chaos.record.seconds:.0f} s; {len(chaos.record.asked)} requests: {dict(ends)}; {dict(chaos.model.struck)}"


def answered(chaos: Chaos) -> list[Asked]:
    return [asked for asked in chaos.record.asked if asked.end is End.ANSWERED]


def test_every_fault_really_happened(chaos: Chaos) -> None:
    assert (chaos.lives.number, chaos.record.outages) == (LIVES, 1)
    assert chaos.sandboxes.deleted >= TRIALS / 20
    assert set(chaos.model.struck) == set(Fate) - {Fate.NONE}


def test_every_request_was_answered_or_its_connection_closed_and_every_trial_was_graded_in_the_end(
    chaos: Chaos,
) -> None:
    """That none was silent for longer than it may be, the run itself has seen to."""
    assert chaos.record.graded == set(range(TRIALS))
    assert sum(asked.is_graded for asked in chaos.record.asked) == TRIALS
    assert len({asked.played.name for asked in chaos.record.asked}) == len(chaos.record.asked)


def test_every_reward_is_the_true_one(chaos: Chaos) -> None:
    graded = [asked for asked in answered(chaos) if asked.is_graded]
    wrong = [
        (asked.played, asked.status, asked.answer["reward"], asked.answer["eval_report"], asked.answer["message"])
        for asked in graded
        if asked.answer["reward"] != asked.played.truth
        or asked.answer["eval_report"] != {"reward": asked.played.truth}
        or asked.status != "Submitted"
        or asked.answer["infra_failure"]
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_no_failure_of_infrastructure_was_scored(chaos: Chaos) -> None:
    doomed = [asked for asked in answered(chaos) if asked.played.fate not in WELL]
    assert [asked for asked in doomed if asked.is_graded] == []
    failed = [asked.answer for asked in answered(chaos) if not asked.is_graded]
    assert [
        answer for answer in failed if not answer["infra_failure"] or answer["reward"] or not answer["message"]
    ] == []
    assert {answer["exit_status"] for answer in failed} <= {"SandboxLost", "SandboxUnavailable", "ModelEndpointFailed"}


def test_what_each_server_says_of_its_runs_is_what_their_clients_were_told(chaos: Chaos) -> None:
    for life in range(1, LIVES + 1):
        ended = {one.run: (one.status, one.reward) for one in chaos.lives.ended(life)}
        assert len(ended) == len(chaos.lives.ended(life))
        mine = [asked for asked in chaos.record.asked if asked.life == life]
        told = {asked.run: (asked.status, asked.answer["reward"]) for asked in mine if asked.end is End.ANSWERED}
        assert told.items() <= ended.items()
        assert len(ended) - len(told) <= sum(asked.end is End.CLOSED for asked in mine)


def test_the_counters_of_the_last_server_are_its_clients_answers(chaos: Chaos) -> None:
    last = [asked for asked in chaos.record.asked if asked.life == LIVES]
    assert {asked.end for asked in last} == {End.ANSWERED}
    assert chaos.record.last_health["outcomes"] == Counter(asked.status for asked in last)


def test_at_the_end_all_slots_are_free_and_nothing_is_left(chaos: Chaos) -> None:
    health = chaos.record.last_health
    assert (health["status"], health["free"], health["in_flight"], health["queued"]) == ("ok", SLOTS, 0, 0)
    assert set(chaos.record.left) <= {ONCE_FOR_ALL}
    assert chaos.record.exit_code == 0


def test_no_server_failed_inside(chaos: Chaos) -> None:
    for log in chaos.lives.logs:
        assert "Traceback" not in log.read_text()
