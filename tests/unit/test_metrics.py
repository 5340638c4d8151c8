"""The metrics are those that are documented, and count what they say."""

import re
from pathlib import Path

import pytest

from harborrl_operator import metrics
from harborrl_operator.errors import UnansweredError
from harborrl_operator.job_book import JobBook
from harborrl_operator.models import JobStatus
from harborrl_operator.models.status import AttemptStatus
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
    before, after = JobStatus(attempts=[running]), JobStatus(attempts=[failed])
    metrics.count_change(before, after)
    metrics.count_change(after, after)
    assert value("harborrl_attempts_total", outcome="Failed", failure_class="storage") == 1
    assert value("harborrl_gpu_hours_lost_total", failure_class="storage") == 2.5


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
    metrics.show_jobs(book.phases())
    assert [value("harborrl_jobs", phase=phase) for phase in ("Running", "Pending", "Failed")] == [1, 1, 0]
