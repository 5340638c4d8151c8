"""The CRD is generated, small, and leaves what a preset may set without a default."""

from pathlib import Path

import yaml

from harborrl_operator.crd import COPIES, REFERENCE, custom_resource_definition, render, render_reference
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


def test_every_field_of_the_spec_says_what_it_means() -> None:
    def silent(node: dict[str, object], path: str) -> list[str]:
        children = node.get("properties") or {}
        assert isinstance(children, dict)
        own = [f"{path}.{name}" for name, child in children.items() if not child.get("description")]
        return own + [hit for name, child in children.items() for hit in silent(child, f"{path}.{name}")]

    assert silent(SCHEMA["properties"]["spec"], "spec") == []


def test_hyper_parameters_have_no_schema_default_since_presets_rank_above_defaults() -> None:
    config = SCHEMA["properties"]["spec"]["properties"]["trainer"]["properties"]["config"]["properties"]
    assert [name for name, field in config.items() if "default" in field] == []
    assert len(config) == len(FrameworkConfig.model_fields)


def test_the_spec_itself_has_no_default_which_would_have_to_satisfy_the_rules() -> None:
    assert "default" not in SCHEMA["properties"]["spec"]
