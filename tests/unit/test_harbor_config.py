"""HarborFrameworkConfig gives what was recorded of the documented class, word by word."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harborrl_operator.models.framework import FrameworkConfig
from harborrl_trainer.config import HarborFrameworkConfig, MilesFrameworkConfig, warnings_of
from harborrl_trainer.config.about import GROUPS
from harborrl_trainer.config.generate import descriptions, framework_module
from harborrl_trainer.config.miles import about
from harborrl_trainer.job import ResolvedConfig

ROOT = Path(__file__).resolve().parents[2]
RECORDED = json.loads((ROOT / "tests/data/miles/harbor_config.json").read_text())
VECTORS = [vector for vector in RECORDED["vectors"] if "construct" not in vector]
REFUSED = [vector for vector in RECORDED["vectors"] if "construct" in vector]
LOADED = {"annotated_types", "harborrl_trainer", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"}


def _name(vector: dict[str, Any]) -> str:
    return ",".join(vector["kwargs"]) or "defaults"


@pytest.mark.parametrize(
    "method", ["cli_args", "parsed_recipe_args", "resolved_actor_nodes", "resolved_rollout_num_gpus"]
)
@pytest.mark.parametrize("vector", VECTORS, ids=_name)
def test_every_recorded_answer_is_given_again(vector: dict[str, Any], method: str) -> None:
    call, recorded = getattr(HarborFrameworkConfig(**vector["kwargs"]), method), vector[method]
    if "ok" in recorded:
        assert call() == recorded["ok"]
    else:
        with pytest.raises(ValueError, match=r".") as caught:
            call()
        assert type(caught.value).__name__ == recorded["error"]
        assert str(caught.value) == recorded["message"]


@pytest.mark.parametrize("vector", REFUSED, ids=_name)
def test_every_recorded_refusal_is_given_again(vector: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        HarborFrameworkConfig(**vector["kwargs"])
    problems = caught.value.errors()
    assert [problem["type"] for problem in problems] == vector["construct"]["types"]
    assert [list(problem["loc"]) for problem in problems] == vector["construct"]["loc"]


def test_all_58_fields_have_their_documented_default_in_the_documented_order() -> None:
    assert len(RECORDED["field_defaults"]) == 58
    assert list(vars(HarborFrameworkConfig()).items()) == list(RECORDED["field_defaults"].items())


def test_the_base_class_emits_the_prefix_that_ends_with_the_weight_bridge() -> None:
    base = MilesFrameworkConfig().cli_args()
    assert base[-2:] == ["--megatron-to-hf-mode", "bridge"]
    assert HarborFrameworkConfig().cli_args()[: len(base)] == base
    assert MilesFrameworkConfig().miles_image == "radixark/miles:dev-202603231227"


def test_a_wrong_assignment_is_refused_and_leaves_the_old_value() -> None:
    config = HarborFrameworkConfig()
    wrong: dict[str, Any] = {"lr": "fast", "learning_rate": 1.0, "gpus_per_node": 4}
    said = {}
    for name, value in wrong.items():
        with pytest.raises((ValidationError, AttributeError)) as caught:
            setattr(config, name, value)
        said[name] = caught.value.errors()[0]["type"] if isinstance(caught.value, ValidationError) else "AttributeError"
    assert said == {"lr": "float_parsing", "learning_rate": "no_such_attribute", "gpus_per_node": "AttributeError"}
    assert (config.lr, config.gpus_per_node) == (1e-6, 8)


@pytest.mark.parametrize("kwargs", [{"gpus_per_node": 4}, {"tensor_model_parallel_size": 2}, {"bf16": "maybe"}])
def test_what_is_no_field_or_no_value_of_it_is_refused(kwargs: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HarborFrameworkConfig(**kwargs)


def test_lax_values_become_the_fields_type() -> None:
    written: dict[str, Any] = {"seed": "4", "bf16": "false", "lr": 1, "micro_batch_size": True}
    config = HarborFrameworkConfig(**written)
    assert (config.seed, config.bf16, config.micro_batch_size) == (4, False, 1)
    assert config.cli_args()[10:12] == ["--lr", "1.0"]


def test_a_forced_list_a_hidden_and_a_leftover_attribute_are_emitted_as_documented() -> None:
    config = HarborFrameworkConfig()
    vars(config).update({"stop": ["a", 1], "none": [], "_hidden": 1, "gpu": "H100", "table": {"a": 1}})
    assert config.cli_args()[-6:] == ["--stop", "a", "1", "--none", "--table", "{'a': 1}"]


def test_fields_with_a_home_elsewhere_leave_the_flags_alone() -> None:
    config = HarborFrameworkConfig(
        environment_import_path="m:E", agent_kwargs={"a": 1}, extra_args="--x", task_root="/t"
    )
    assert config.cli_args() == HarborFrameworkConfig().cli_args()


def test_each_field_has_a_group_and_a_description_of_its_own() -> None:
    docs = descriptions()
    for field in dataclasses.fields(HarborFrameworkConfig):
        assert about(field).group in GROUPS
        assert len(docs[field.name]) > 30, field.name
    assert len({docs[field.name] for field in dataclasses.fields(HarborFrameworkConfig)}) == 58


def test_the_operators_model_is_generated_from_the_class() -> None:
    written = ROOT / "operator/harborrl_operator/models/framework.py"
    assert written.read_text() == framework_module(), "run `make generate`"


def test_the_three_models_of_a_field_agree_on_its_default() -> None:
    documented = vars(HarborFrameworkConfig())
    left_to_the_model = {"untie_embeddings_and_output_weights", "eval_interval"}
    for name, field in FrameworkConfig.model_fields.items():
        assert field.get_default(call_default_factory=True) == documented[name], name
        if name not in left_to_the_model:
            assert getattr(ResolvedConfig(), name) == documented[name], name
    assert set(ResolvedConfig.model_fields) == set(FrameworkConfig.model_fields)


def test_the_configuration_loads_pydantic_and_nothing_else_that_is_installed() -> None:
    """What the bound on its import time (benchmarks/config_import.py) rests on."""
    text = (
        "import sys; before = {*sys.modules}; import harborrl_trainer.config; loaded = {*sys.modules} - before\n"
        "print(*{name.split('.')[0] for name in loaded} - sys.stdlib_module_names)\n"
        "print(*{'.'.join(name.split('.')[:2]) for name in loaded if name.startswith('harborrl_trainer.')})"
    )
    said = subprocess.run(  # noqa: S603 - our own interpreter with our own text
        [sys.executable, "-c", text],
        env={"PYTHONPATH": str(ROOT / "trainer")},
        capture_output=True,
        text=True,
        check=True,
    )
    installed, ours = (set(line.split()) for line in said.stdout.splitlines())
    # pydantic reads the interpreter's build variables, a module with the platform in its name
    assert {name for name in installed if not name.startswith("_sysconfigdata")} == LOADED
    assert ours == {"harborrl_trainer.config"}


@pytest.mark.parametrize(
    ("kwargs", "field", "said"),
    [
        ({"recipe_args": "--name 'run#1'"}, "recipe_args", "inside single quotes"),
        (
            {"recipe_args": "--swiglu\n--name run#1"},
            "recipe_args",
            "line 2: '#' begins a comment in the middle of a word",
        ),
        ({"extra_args": "--a 1 \\\n--b 2"}, "extra_args", "joins no lines"),
        ({"recipe_args": "--a 'x \n y'"}, "recipe_args", "goes on in the next line"),
        ({"extra_args": "--x $HOME"}, "extra_args", "there is no shell"),
        ({"extra_args": "--x 'a"}, "extra_args", "No closing quotation"),
        ({"extra_args": "lr 1e-5"}, "extra_args", "which is no flag"),
        ({"extra_args": "'--lr 1e-5'"}, "extra_args", "quote the value alone"),
        ({"recipe_args": "--lr 1\n--lr 2"}, "recipe_args", "--lr is given 2 times"),
        ({"rollout_num_gpus": 8, "n_nodes": 2}, "rollout_num_gpus", "ignored while colocate"),
        ({"rollout_num_gpus": 0, "colocate": False, "n_nodes": 2}, "rollout_num_gpus", "means unset"),
        ({"actor_nodes": 3}, "actor_nodes", "3 of 1 nodes"),
        ({"colocate": False}, "n_nodes", "bump n_nodes"),
        ({"lr": float("nan")}, "lr", "no number"),
        ({"input_key": ""}, "input_key", "is empty"),
        ({"global_batch_size": 100}, "global_batch_size", "set it to 512"),
        ({"n_samples_per_prompt": 1, "global_batch_size": 64}, "n_samples_per_prompt", "nothing is learnt"),
        ({"sandbox_idle_timeout_secs": 1800}, "sandbox_idle_timeout_secs", "never acts"),
        ({"custom_config_yaml": "  \n"}, "custom_config_yaml", "is ignored"),
    ],
)
def test_what_is_read_otherwise_than_meant_is_warned_about(kwargs: dict[str, Any], field: str, said: str) -> None:
    quirks = warnings_of(HarborFrameworkConfig(**kwargs))
    assert any(quirk.field == field and said in quirk.message for quirk in quirks), quirks
    assert {quirk.field for quirk in quirks} == {field}


def test_the_defaults_and_plain_recipes_are_warned_about_in_no_way() -> None:
    recipe = "# model\n--num-layers 36   # layers\n\n--moe-layer-freq '[0]+[1]' --kwargs '{\"a\": false}'"
    assert warnings_of(HarborFrameworkConfig(recipe_args=recipe, extra_args="--lr 2e-6")) == ()
