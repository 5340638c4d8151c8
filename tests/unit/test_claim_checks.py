"""A claim that not every pod which mounts it can reach is refused before anything is held."""

import pytest

from harborrl_operator.models.spec import ROLES
from support import hrl
from support.hrl import condition, decide, message


@pytest.mark.parametrize(
    ("modes", "refused"),
    [
        ({"models": ["ReadOnlyMany"], "work": ["ReadWriteMany"]}, ""),
        ({"models": ["ReadWriteOnce"], "work": ["ReadWriteMany"]}, "share claim models"),
        ({"models": ["ReadOnlyMany"], "work": ["ReadWriteOnce", "ReadOnlyMany"]}, "share claim work"),
        ({"models": ["ReadWriteOncePod"], "work": ["ReadWriteMany"]}, "models has access mode ReadWriteOncePod"),
    ],
    ids=["readers share", "one node reads", "writers do not share", "one pod"],
)
def test_claims_must_reach_every_pod_that_mounts_them(modes: dict[str, list[str]], refused: str) -> None:
    storage = {role: {"pvc": "models" if role in ("models", "tasks") else "work"} for role in ROLES}
    claims = {name: {"metadata": {"name": name}, "spec": {"accessModes": wanted}} for name, wanted in modes.items()}
    decided = decide(
        hrl.job({"trainer.engine": "miles", "trainer.gpusPerNode": 8, "storage": storage}), hrl.world(claims=claims)
    )
    assert (condition(decided, "Admitted")[1] == "ClaimNotShared") is bool(refused)
    assert refused in message(decided, "Admitted")
