"""A supervisor may read what it is asked and write what it reports, by whichever role it has."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harborrl_operator.resolve import resolve
from harborrl_operator.resources.rbac import accounts_and_bindings
from support import hrl

CHART = Path(__file__).resolve().parents[2] / "charts" / "harborrl" / "templates" / "rbac-jobs.yaml"


def rules() -> Iterator[dict[str, Any]]:
    """Of the chart's role for trainers, and of the roles that the operator makes for a job."""
    for document in yaml.safe_load_all(re.sub(r"\{\{.*?\}\}", "", CHART.read_text())):
        if document and document["metadata"]["name"] == "harborrl-trainer":
            yield from document["rules"]
    for thing in accounts_and_bindings(resolve(hrl.job(), hrl.SETTINGS)):
        if thing["kind"] == "Role":
            yield from thing["rules"]


@pytest.mark.parametrize(
    ("verb", "name"),
    [("get", "quickstart-request"), ("get", "quickstart-progress"), ("patch", "quickstart-progress")],
)
def test_a_supervisor_may(verb: str, name: str) -> None:
    allowed = [
        rule
        for rule in rules()
        if "configmaps" in rule["resources"] and verb in rule["verbs"] and name in rule.get("resourceNames", [name])
    ]
    assert allowed, f"no rule lets a supervisor {verb} ConfigMap {name}"
