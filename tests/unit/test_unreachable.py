"""A job that means to log to W&B and lets nothing out is told so before its trainer hangs on it."""

from dataclasses import replace
from typing import Any

import pytest

from harborrl_cli.validation.jobs import Assumed, judge
from harborrl_operator.models import Settings
from harborrl_operator.models.network import NetworkSettings
from harborrl_operator.resolve import resolve
from support import hrl

KEY = {"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "key"}}}
ANYWHERE = [{"cidr": "0.0.0.0/0", "ports": [443]}]


def noted(changes: dict[str, Any], settings: Settings = hrl.SETTINGS) -> list[str]:
    job = resolve(hrl.job(changes), settings)
    return [one.reason for one in job.adjustments if one.field == "network.egress"]


def test_it_is_said_with_both_ways_out() -> None:
    (said,) = noted({"trainer.env": [KEY]})
    assert "trainer.env has WANDB_API_KEY and network.egress nothing" in said
    assert "WANDB_MODE to offline" in said


@pytest.mark.parametrize(
    ("changes", "network"),
    [
        ({}, {}),
        ({"trainer.env": [KEY], "network.egress": ANYWHERE}, {}),
        ({"trainer.env": [KEY, {"name": "WANDB_MODE", "value": "offline"}]}, {}),
        ({"trainer.env": [KEY]}, {"egress": [{"ports": [{"port": 3128}]}]}),
        ({"trainer.env": [KEY]}, {"policies": False}),
    ],
    ids=["no key", "the job lets it out", "it stays inside", "the platform lets it out", "nothing is closed"],
)
def test_nothing_is_said_where_it_is_wrong(changes: dict[str, Any], network: dict[str, Any]) -> None:
    assert noted(changes, replace(hrl.SETTINGS, network=NetworkSettings.model_validate(network))) == []


def test_validate_warns_of_it() -> None:
    spec = hrl.merged(hrl.QUICKSTART_SPEC, {"trainer.env": [KEY]})
    job = {"apiVersion": "harborrl.dev/v1alpha1", "kind": "HarborRLJob", "metadata": {"name": "j"}, "spec": spec}
    found = [one for one in judge(job, Assumed()).findings if one.path == "spec.network.egress"]
    assert [one.severity for one in found] == ["warning"]
