"""Fields that the installed KubeRay does not know are found before the API server drops them."""

import copy
import json
from typing import Any

import pytest
import yaml

from harborrl_operator.probe import fit, schema_of
from support import golden

VERSIONS = ("1.5.1", "1.6.2")
CASES = ("quickstart", "design", "gang")


def schema(version: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((golden.DATA / "kuberay" / f"rayclusters-v{version}.json").read_text())
    return loaded


def manifest(case: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((golden.DATA / "operator" / case / "ray_cluster.yaml").read_text())
    return loaded


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("version", VERSIONS)
def test_all_that_we_send_is_known_to_each_version_of_kuberay(version: str, case: str) -> None:
    sent = manifest(case)
    fitted = fit(schema(version), sent)
    assert (fitted.dropped, fitted.missing) == ((), ())
    assert fitted.manifest == sent


def test_a_field_that_came_with_1_6_is_missed_on_1_5_and_named_by_its_path() -> None:
    sent = manifest("quickstart")
    sent["spec"]["upgradeStrategy"] = {"type": "None"}
    assert fit(schema("1.6.2"), sent).missing == ()
    refused = fit(schema("1.5.1"), sent)
    assert refused.missing == ("spec.upgradeStrategy",)
    assert "upgradeStrategy" not in refused.manifest["spec"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_misspelt_override_is_found_where_the_api_server_would_drop_it(version: str) -> None:
    sent = manifest("quickstart")
    sent["spec"]["workerGroupSpecs"][0]["template"]["spec"]["tolerationz"] = []
    sent["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["resource"] = {}
    assert fit(schema(version), sent).missing == (
        "spec.headGroupSpec.template.spec.containers[0].resource",
        "spec.workerGroupSpecs[0].template.spec.tolerationz",
    )


def without(known: dict[str, Any], *path: str) -> dict[str, Any]:
    """The schema of a KubeRay that does not know a field."""
    out = copy.deepcopy(known)
    *parents, last = path
    part = out
    for parent in parents:
        part = part[parent]
    del part[last]
    return out


_PARTS = ("spec", "headGroupSpec", "template", "spec")
POD = (*(step for part in _PARTS for step in ("properties", part)), "properties")


def test_what_only_makes_a_pod_tidier_is_dropped_and_said() -> None:
    old = without(schema("1.5.1"), *POD, "enableServiceLinks")
    fitted = fit(old, manifest("design"))
    assert fitted.dropped == ("spec.headGroupSpec.template.spec.enableServiceLinks",)
    assert fitted.missing == ()
    assert "enableServiceLinks" not in fitted.manifest["spec"]["headGroupSpec"]["template"]["spec"]


def test_a_supervisor_that_would_not_be_restarted_is_not_sent() -> None:
    old = without(schema("1.5.1"), *POD, "initContainers", "items", "properties", "restartPolicy")
    missing = fit(old, manifest("quickstart")).missing
    assert missing == ("spec.headGroupSpec.template.spec.initContainers[0].restartPolicy",)


def test_free_keys_and_free_objects_are_kept_whole() -> None:
    known = {
        "properties": {
            "spec": {
                "properties": {
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "closed": {"type": "object"},
                }
            }
        }
    }
    sent = {"kind": "X", "metadata": {"a": 1}, "spec": {"labels": {"b": "c"}, "any": {"d": [1]}, "closed": {"e": 1}}}
    fitted = fit(known, sent)
    assert fitted.manifest["spec"] == {"labels": {"b": "c"}, "any": {"d": [1]}, "closed": {}}
    assert fitted.missing == ("spec.closed.e",)


def test_a_version_that_is_not_served_has_no_schema() -> None:
    crd = {"spec": {"versions": [{"name": "v1", "served": False, "schema": {"openAPIV3Schema": {}}}]}}
    assert schema_of(crd, "v1") is None
    assert schema_of(crd, "v2") is None
