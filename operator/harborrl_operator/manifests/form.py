"""What the API server says of a manifest's form, operator or no operator."""

import difflib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from harborrl_operator.constants import API_VERSION, KIND
from harborrl_operator.crd import custom_resource_definition
from harborrl_operator.manifests import rules, structure
from harborrl_operator.manifests.fault import Fault


def is_job(document: Any) -> bool:
    """Also what is meant to be one: with its group, or with its kind in other letters."""
    if not isinstance(document, Mapping):
        return False
    kind, group = str(document.get("kind"))[:80], str(document.get("apiVersion")).partition("/")[0]
    like = difflib.SequenceMatcher(None, kind.lower(), KIND.lower()).ratio()
    return group == API_VERSION.partition("/")[0] or like > 0.8


def form_faults(manifest: Mapping[str, Any]) -> Iterator[Fault]:
    """All of them, but for those that the CRD's rules find: they are asked where the schema is kept."""
    if manifest.get("apiVersion") != API_VERSION:
        yield Fault("apiVersion", f"is {manifest.get('apiVersion')!r}, must be {API_VERSION}")
    if manifest.get("kind") != KIND:
        yield Fault("kind", f"is {str(manifest.get('kind'))[:80]!r}, must be {KIND}")
    yield from rules.name_fault(metadata_of(manifest).get("name"))
    for name in manifest.keys() - {"apiVersion", "kind", "metadata", "spec", "status"}:
        yield Fault(str(name), "is no field of a HarborRLJob; remove it")
    faults = list(structure.faults(manifest.get("spec"), _spec_schema(), "spec"))
    yield from faults
    if not faults:
        yield from rules.broken(stored_spec(manifest), _messages())


def metadata_of(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    given = manifest.get("metadata")
    return given if isinstance(given, dict) else {}


def stored_spec(manifest: Mapping[str, Any]) -> Any:
    """As the API server stores the spec of a manifest whose form is right: without fields that are null."""
    return structure.pruned(manifest["spec"], _spec_schema())


@cache
def _spec_schema() -> Mapping[str, Any]:
    (version,) = json.loads(json.dumps(custom_resource_definition()))["spec"]["versions"]
    schema: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


@cache
def _messages() -> Mapping[str, str]:
    """How a message of the CRD's rules begins -> the whole of it."""
    told = [rule["message"] for rule in _spec_schema()["x-kubernetes-validations"]]
    return {begins: next(one for one in told if one.startswith(begins)) for begins in rules.SPEC_RULES}
