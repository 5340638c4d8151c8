"""Every CPU limit that the schema admits can be computed with, and what is no quantity is refused at the door."""

import pytest

from harborrl_operator.models import InvalidJobError
from harborrl_operator.quantities import whole_cpus
from support import hrl


@pytest.mark.parametrize(
    ("limit", "cpus"),
    [
        (4, 4),
        ("4", 4),
        ("500m", 1),
        ("1500m", 2),
        ("2.5", 3),
        ("2k", 2000),
        ("1e1", 10),
        ("5000000u", 5),
        ("1Ki", 1024),
    ],
)
def test_a_cpu_limit_is_rounded_up(limit: int | str, cpus: int) -> None:
    job = hrl.job({"trainer.resources": {"limits": {"cpu": limit}}})
    assert whole_cpus(job.spec.trainer.resources) == cpus


@pytest.mark.parametrize("limit", ["8 cores", "eight", "-1", -1, "inf", "1_000", "1e999999999", ""])
def test_what_is_no_quantity_is_refused_at_the_door(limit: int | str) -> None:
    with pytest.raises(InvalidJobError, match=r"spec\.trainer\.resources\.limits\.cpu"):
        hrl.job({"trainer.resources": {"limits": {"cpu": limit}}})


@pytest.mark.parametrize(
    "changes", [{"queueName": "Team A"}, {"queueName": ""}, {"trainer.gpuProduct": "H 200"}], ids=str
)
def test_what_becomes_a_label_must_be_one(changes: dict[str, str]) -> None:
    with pytest.raises(InvalidJobError, match="pattern"):
        hrl.job(changes)
