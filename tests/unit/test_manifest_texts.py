"""`harborrl validate` and `argv` refuse a text that the API server refuses by a rule of the CRD."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from harborrl_operator.crd import custom_resource_definition
from harborrl_operator.manifests.form import form_faults
from harborrl_operator.manifests.text_rules import BROKEN
from support import hrl


def rules_of_texts(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if schema.get("type") == "string":
            yield from (rule["rule"] for rule in schema.get("x-kubernetes-validations", ()))
        for part in schema.values():
            yield from rules_of_texts(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from rules_of_texts(part)


def test_every_rule_on_a_text_can_be_asked_here() -> None:
    assert set(rules_of_texts(json.loads(json.dumps(custom_resource_definition())))) == BROKEN.keys()


@pytest.mark.parametrize(
    ("changes", "path", "says"),
    [
        ({"resumeFrom": {"path": "a\x1f"}}, "spec.resumeFrom.path", "control characters"),
        ({"resumeFrom": {"path": "a/../../b"}}, "spec.resumeFrom.path", "lead out of the volume"),
        ({"data": {"tasks": {"glob": "/etc/*"}}}, "spec.data.tasks.glob", "a relative path without '..'"),
    ],
)
def test_a_path_that_the_api_server_refuses_is_refused(changes: dict[str, Any], path: str, says: str) -> None:
    spec = hrl.merged(hrl.QUICKSTART_SPEC, changes)
    job = {"apiVersion": "harborrl.dev/v1alpha1", "kind": "HarborRLJob", "metadata": {"name": "x"}, "spec": spec}
    assert [fault.message for fault in form_faults(job) if fault.path == path and says in fault.message]
