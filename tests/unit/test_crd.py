"""The CRD is generated, small, and leaves what a preset may set without a default."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from harborrl_operator.crd import COPIES, REFERENCE, custom_resource_definition, render, render_reference
from harborrl_operator.frozen import EXCEPT, FREE, FROZEN, ONLY_WHILE_QUEUED, PARTLY
from harborrl_operator.models.framework import FrameworkConfig

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_every_copy_is_what_the_models_generate() -> None:
    for copy in COPIES:
        assert (ROOT / copy).read_text() == render(), f"{copy}: run `python -m harborrl_operator.crd`"


def test_the_reference_page_is_what_the_models_generate() -> None:
    assert (ROOT / REFERENCE).read_text() == render_reference(), "run `python -m harborrl_operator.crd`"


def test_it_fits_a_client_side_apply() -> None:
    assert len(render().encode()) < 256 * 1024
    assert yaml.safe_load(render())["metadata"]["name"] == "harborrljobs.harborrl.dev"


def fields(node: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Every named field below `node` with its description, through lists too."""
    for name, child in (node.get("properties") or {}).items():
        yield f"{path}.{name}", child.get("description", "")
        yield from fields(child, f"{path}.{name}")
    if isinstance(node.get("items"), dict):
        yield from fields(node["items"], f"{path}[]")


@pytest.mark.parametrize("part", ["spec", "status"])
def test_every_field_says_what_it_means(part: str) -> None:
    described = dict(fields(SCHEMA["properties"][part], part))
    assert len(described) > 40
    assert [path for path, said in described.items() if not said.endswith((".", ")"))] == []


def test_every_number_of_seconds_says_what_happens_beyond_it_or_when() -> None:
    times = {path: said for path, said in fields(SCHEMA["properties"]["spec"], "spec") if path.endswith("Seconds")}
    assert len(times) > 10
    assert [path for path, said in times.items() if len(said.split()) < 6] == []


def test_hyper_parameters_have_no_schema_default_since_presets_rank_above_defaults() -> None:
    config = SCHEMA["properties"]["spec"]["properties"]["trainer"]["properties"]["config"]["properties"]
    assert [name for name, field in config.items() if "default" in field] == []
    assert len(config) == len(FrameworkConfig.model_fields)


def test_the_spec_itself_has_no_default_which_would_have_to_satisfy_the_rules() -> None:
    assert "default" not in SCHEMA["properties"]["spec"]


def test_of_every_part_of_the_spec_somebody_has_decided_whether_a_running_attempt_takes_an_edit() -> None:
    parts = sorted((*FROZEN, *PARTLY, *EXCEPT, *FREE, *ONLY_WHILE_QUEUED))
    assert parts == sorted(SCHEMA["properties"]["spec"]["properties"])
    rules = "".join(rule["rule"] for rule in SCHEMA["x-kubernetes-validations"])
    for part in FREE:
        assert f"oldSelf.spec.{part}" not in rules


MAY_BE_EMPTY = {
    "trainer.nodeSelector.*",
    "trainer.env[].value",
    "agentServer.sandbox.nodeSelector.*",
    "agentServer.sandbox.nodeSelectorForGpu.*.*",
    "agentServer.sandbox.tools.image",
}
"""Label values, variables, and a bundle that a job does not want: empty is a value of its own there."""


def values(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every scalar, through lists and free maps too."""
    if "items" in schema:
        yield from values(f"{path}[]", schema["items"])
    elif isinstance(schema.get("additionalProperties"), dict):
        yield from values(f"{path}.*", schema["additionalProperties"])
    elif "properties" in schema:
        for name, child in schema["properties"].items():
            yield from values(f"{path}.{name}" if path else name, child)
    else:
        yield path, schema


def test_an_empty_text_never_passes_for_a_value_where_a_missing_one_has_a_meaning() -> None:
    """`agentServer.url: ""` would be a server of nobody's."""
    texts = [
        (path, field)
        for path, field in values("", SCHEMA["properties"]["spec"])
        if field.get("type") == "string" and "enum" not in field and "default" not in field
    ]
    empty = {path for path, field in texts if not field.get("minLength") and re.search(field.get("pattern", ""), "")}
    assert empty == MAY_BE_EMPTY


def test_no_text_of_a_spec_may_hold_a_nul() -> None:
    """It can be stored, but no container can be made with it: a subPath, a variable, an argument."""
    texts = {
        path: field
        for path, field in values("", SCHEMA["properties"]["spec"])
        if field.get("type") == "string" and "enum" not in field
    }
    assert len(texts) > 60
    open_ones = [
        path
        for path, field in texts.items()
        if re.search(field.get("pattern", ""), "a\0b") and "cntrl" not in str(field.get("x-kubernetes-validations"))
    ]
    assert open_ones == []


def test_the_api_server_looks_at_every_path() -> None:
    """A field that names a place and has no rule would be judged by the trainer alone, minutes later."""
    names = re.compile(r"(path|root|glob|jsonl|load|file|dir|directory)$", re.IGNORECASE)
    paths = {path: field for path, field in values("", SCHEMA["properties"]["spec"]) if names.search(path)}
    assert len(paths) == 13
    assert [path for path, field in paths.items() if not field.get("x-kubernetes-validations")] == []
