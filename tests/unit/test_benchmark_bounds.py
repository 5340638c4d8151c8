"""A benchmark whose bound is missed says so; the figures themselves are no test's."""

from typing import Any

import pytest
from benchmarks import config_import, data_prepare


@pytest.mark.parametrize(("best", "is_missed"), [(149.9, False), (150.0, True)])
def test_an_import_is_judged_by_its_best_processor_time(best: float, is_missed: bool) -> None:
    found = config_import.missed({"median_ms": 9000.0, "processor_best_ms": best})
    assert bool(found) is is_missed


def figures(rate: float, times: float, megabytes: float = 130) -> dict[str, Any]:
    return {
        "prepare": {"rowsPerCpuSecond": rate},
        "timesACopy": {"cpu": times},
        "memory": [{"peakMegabytes": 40}, {"peakMegabytes": megabytes}],
    }


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (figures(249_000, 2.9), []),
        (figures(20_000, 1.9), []),
        (figures(20_000, 2.1), ["20000 rows a CPU second and 2.1 times a copy"]),
        (figures(249_000, 2.9, 300), ["the largest resident memory was 300 MB"]),
    ],
)
def test_preparing_is_judged_by_memory_and_by_its_rate_or_beside_a_copy(found: dict[str, Any], said: list[str]) -> None:
    missed = data_prepare.missed(found)
    assert [one.split(",")[0] for one in missed] == said
