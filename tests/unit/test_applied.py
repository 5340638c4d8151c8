"""An object is applied again exactly when the API server may no longer have it as it was applied."""

from datetime import timedelta
from typing import Any

import pytest

from harborrl_operator.applied import RESYNC_SECONDS, RESYNC_WATCHED_SECONDS, Applied
from support import hrl


def thing(kind: str = "Service", **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "x", "namespace": "n"}, "spec": spec}


def stored(kind: str = "Service", version: str = "7", **meta: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "x", "namespace": "n", "resourceVersion": version, **meta}}


def after_apply(kind: str = "Service", **meta: Any) -> Applied:
    applied = Applied()
    applied.note(thing(kind), stored(kind, **meta), hrl.NOW)
    return applied


def test_what_was_applied_is_not_applied_again() -> None:
    assert after_apply().holds(thing(), hrl.NOW)
    assert not Applied().holds(thing(), hrl.NOW)


def test_another_content_is_applied() -> None:
    assert not after_apply().holds(thing(port=1), hrl.NOW)


@pytest.mark.parametrize(("kind", "longest"), [("Role", RESYNC_SECONDS), ("Service", RESYNC_WATCHED_SECONDS)])
def test_after_a_while_it_is_applied_again(kind: str, longest: float) -> None:
    applied = after_apply(kind)
    assert applied.holds(thing(kind), hrl.NOW + timedelta(seconds=longest - 1))
    assert not applied.holds(thing(kind), hrl.NOW + timedelta(seconds=longest))


def test_our_own_write_coming_back_changes_nothing_and_somebody_elses_does() -> None:
    applied = after_apply()
    applied.seen("Service", stored(version="7"), is_deleted=False)
    assert applied.holds(thing(), hrl.NOW)
    applied.seen("Service", stored(version="8"), is_deleted=False)
    assert not applied.holds(thing(), hrl.NOW)


def test_a_status_that_moves_is_no_change_of_a_deployment() -> None:
    applied = after_apply("Deployment", generation=1)
    applied.seen("Deployment", stored("Deployment", version="99", generation=1), is_deleted=False)
    assert applied.holds(thing("Deployment"), hrl.NOW)
    applied.seen("Deployment", stored("Deployment", version="99", generation=2), is_deleted=False)
    assert not applied.holds(thing("Deployment"), hrl.NOW)


def test_a_deleted_object_is_applied_again() -> None:
    applied = after_apply()
    applied.seen("Service", stored(), is_deleted=True)
    assert not applied.holds(thing(), hrl.NOW)


def test_a_deleted_job_makes_its_whole_namespace_doubtful() -> None:
    applied = after_apply()
    applied.forget_namespace("other")
    assert applied.holds(thing(), hrl.NOW)
    applied.forget_namespace("n")
    assert not applied.holds(thing(), hrl.NOW)
