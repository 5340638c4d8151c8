"""The metrics are those that are documented, and count what they say."""

import re
from pathlib import Path
from typing import get_args

import pytest

from harborrl_operator import metrics
from harborrl_operator.errors import UnansweredError
from harborrl_operator.job_book import JobBook
from harborrl_operator.models import JobStatus
from harborrl_operator.models.status import AttemptStatus, LossStatus, RestartStatus
from harborrl_operator.progress import FailureClass
from harborrl_operator.transport import Answer, Request
from support import hrl

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def value(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


def test_the_page_lists_each_metric_with_its_type_and_labels_and_no_other() -> None:
    listed = {
        (name.removesuffix("_total"), kind, frozenset(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", PAGE.read_text(), re.MULTILINE)
    }
    collectors = set(metrics.REGISTRY._collector_to_names)
    real = {(c._name, c._type, frozenset(c._labelnames)) for c in collectors}  # type: ignore[attr-defined]  # the library types collectors as an interface
    assert listed == real


def test_an_attempt_counts_once_with_what_it_lost() -> None:
    running = AttemptStatus(number=1, started_at=hrl.ago(60))
    failed = running.model_copy(
        update={"finished_at": hrl.ago(1), "outcome": "Failed", "failure_class": "storage", "lost_gpu_hours": 2.5}
    )
    before = JobStatus(attempts=[running])
    after = JobStatus(attempts=[failed], lost=LossStatus(gpu_hours=2.5))
    metrics.count_change(before, after)
    metrics.count_change(after, after)
    assert value("harborrl_attempts_total", outcome="Failed", failure_class="storage") == 1
    assert value("harborrl_gpu_hours_lost_total", failure_class="storage") == 2.5


def test_a_restart_within_the_quota_counts_what_it_lost_and_the_stall_it_was_for() -> None:
    running = AttemptStatus(number=1, started_at=hrl.ago(60))
    again = {"restarts": 1, "last_restart": RestartStatus(at=hrl.ago(1), cause="Stalled")}
    restarted = JobStatus(attempts=[running.model_copy(update=again)], lost=LossStatus(gpu_hours=40))
    lost, stalls = (
        value("harborrl_gpu_hours_lost_total", failure_class="infrastructure"),
        value("harborrl_stalls_total"),
    )
    metrics.count_change(JobStatus(attempts=[running]), restarted)
    metrics.count_change(restarted, restarted)
    assert value("harborrl_gpu_hours_lost_total", failure_class="infrastructure") == lost + 40
    assert value("harborrl_stalls_total") == stalls + 1


def test_what_a_suspend_lost_counts_when_it_is_known_and_not_again_at_the_end() -> None:
    running = AttemptStatus(number=1, started_at=hrl.ago(60))
    ended = running.model_copy(update={"finished_at": hrl.ago(1), "outcome": "Succeeded", "lost_gpu_hours": 8.0})
    suspended = JobStatus(attempts=[running], lost=LossStatus(gpu_hours=8))
    lost = value("harborrl_gpu_hours_lost_total", failure_class="")
    metrics.count_change(JobStatus(attempts=[running]), suspended)
    metrics.count_change(suspended, JobStatus(attempts=[ended], lost=LossStatus(gpu_hours=8)))
    assert value("harborrl_gpu_hours_lost_total", failure_class="") == lost + 8


def test_an_attempt_that_is_ended_for_a_stall_counts_as_one() -> None:
    running = AttemptStatus(number=1, started_at=hrl.ago(60))
    ended = running.model_copy(update={"finished_at": hrl.ago(1), "outcome": "Failed", "cause": "Stalled"})
    stalls = value("harborrl_stalls_total")
    metrics.count_change(JobStatus(attempts=[running]), JobStatus(attempts=[ended]))
    assert value("harborrl_stalls_total") == stalls + 1


def test_counters_of_failures_are_there_before_the_first_one() -> None:
    read = metrics.REGISTRY.get_sample_value
    for name in ("", *get_args(FailureClass)):
        assert read("harborrl_gpu_hours_lost_total", {"failure_class": name}) is not None
        for outcome in ("Succeeded", "Failed"):
            assert read("harborrl_attempts_total", {"failure_class": name, "outcome": outcome}) is not None


def test_a_stall_counts_when_it_begins() -> None:
    job = hrl.job()
    moving = hrl.decide(job, hrl.running_world(job, progress=hrl.progress())).status
    stalled = moving.model_copy(
        update={
            "conditions": [
                c.model_copy(update={"status": "True"}) if c.type == "Stalled" else c for c in moving.conditions
            ]
        }
    )
    before = value("harborrl_stalls_total")
    metrics.count_change(moving, stalled)
    metrics.count_change(stalled, stalled)
    assert value("harborrl_stalls_total") == before + 1


async def test_each_request_counts_by_its_answer_also_when_there_is_none() -> None:
    async def refuses(_: Request) -> Answer:
        return Answer(403, "{}")

    async def is_mute(_: Request) -> Answer:
        raise UnansweredError("gone")

    request = Request("delete", "Lease", "/x")
    await metrics.counted(refuses)(request)
    with pytest.raises(UnansweredError):
        await metrics.counted(is_mute)(request)
    assert [value("harborrl_api_calls_total", verb="delete", kind="Lease", code=code) for code in ("403", "0")] == [
        1,
        1,
    ]


def test_jobs_are_counted_by_the_phase_last_seen() -> None:
    book = JobBook()
    book.note(("n", "a"), {"phase": "Running"})
    book.note(("n", "b"), None)
    book.note(("n", "c"), {"phase": "Running"})
    book.forget(("n", "c"))
    metrics.show_jobs(book.phases(), book.stalled())
    assert [value("harborrl_jobs", phase=phase) for phase in ("Running", "Pending", "Failed")] == [1, 1, 0]


def test_a_stalled_job_is_counted_as_long_as_it_is_one() -> None:
    """The alert goes by it: a counter of stalls was silent after half an hour, while the job held its GPUs."""
    book = JobBook()
    stalled = {"phase": "Running", "conditions": [{"type": "Stalled", "status": "True"}]}
    book.note(("n", "a"), stalled)
    book.note(("n", "b"), stalled)
    book.note(("n", "b"), {"phase": "Running", "conditions": [{"type": "Stalled", "status": "False"}]})
    book.note(("n", "c"), stalled)
    book.forget(("n", "c"))
    metrics.show_jobs(book.phases(), book.stalled())
    assert value("harborrl_jobs_stalled") == 1
