"""What `harborrl validate` and `argv` say of one and the same Miles job: the smoke example with one change."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from harborrl_cli.__main__ import app
from harborrl_cli.validation.findings import Finding
from harborrl_cli.validation.jobs import Assumed, judge
from harborrl_operator.manifests.places import HOMES
from harborrl_trainer.config import HarborFrameworkConfig
from harborrl_trainer.config.miles import about
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.launch import argv_command

SMOKE = Path(__file__).resolve().parents[2] / "examples" / "miles" / "smoke.yaml"


@pytest.fixture(autouse=True)
def _operator_beside_the_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """`argv` asks it in a process of its own."""
    monkeypatch.setenv("PYTHONPATH", str(SMOKE.parents[2] / "operator"))


def smoke(**trainer: Any) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load(SMOKE.read_text())
    made["spec"]["trainer"] |= trainer
    return made


def found(**trainer: Any) -> tuple[Finding, ...]:
    return judge(smoke(**trainer), Assumed()).findings


def faults(manifest: dict[str, Any]) -> list[str]:
    return [f"{one.path}: {one.message}" for one in judge(manifest, Assumed()).findings]


def argv_says(folder: Path, **trainer: Any) -> list[str]:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(smoke(**trainer)))
    return list(argv_command.argv(None, path).said)


KEPT = [
    ({"customConfigYaml": "rollout_batch_sise: 8"}, "did you mean rollout_batch_size?"),
    ({"customConfigYaml": "roll_out_temp: 1"}, "did you mean rollout_temperature?"),
    ({"customConfigYaml": "LR: 1"}, "did you mean lr?"),
    ({"extraArgs": "--sglang-mem-fraction-statik 0.5"}, "did you mean --sglang-mem-fraction-static?"),
    ({"extraArgs": "--custom-generate-function-path a.b"}, "replaces HarborRL's function"),
    ({"recipeArgs": "--custom-agent-function-path a.b"}, "replaces HarborRL's function"),
]


@pytest.mark.parametrize(("change", "says"), KEPT)
def test_raw_arguments_that_are_kept_and_hardly_meant_are_warnings(change: dict[str, Any], says: str) -> None:
    (field,) = change
    (warning,) = found(**change)
    assert (warning.path, warning.severity) == (f"spec.trainer.{field}", "warning")
    assert says in warning.message


def test_argv_warns_of_what_validate_warns_of(tmp_path: Path) -> None:
    change = {"customConfigYaml": "LR: 1"}
    (warning,) = found(**change)
    said = [line for line in argv_says(tmp_path, **change) if line.startswith("warning: ")]
    assert said == [f"warning: trainer.customConfigYaml: {warning.message}"]


def test_what_a_launch_adjusts_is_among_the_adjustments_once(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(smoke(extraArgs="--sglang-own-thing 1")))
    done = CliRunner().invoke(app, ["validate", "--json", str(path)])
    (document,) = json.loads(done.stdout)["documents"]
    fields = [one["field"] for one in document["adjustments"]]
    assert {"agentServer.maxConcurrent", "model.type", "traces/trajectory"} <= {*fields}
    assert len(fields) == len(set(fields))
    assert not any("--sglang-own-thing" in one for one in fields)
    assert [one["severity"] for one in document["findings"]] == ["warning"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("--wandb-project 'a # b c'", "line 1: '#' begins a comment, also inside quotes, and cuts off the end"),
        ("--swiglu\n--a 'x\n y # z'", "line 3: '#' begins a comment, also inside quotes"),
        ("--a 'b' # don't\n--c \"d", "line 2: a quote is never closed; close it"),
        ("--seed 3 \\\n\n", "line 1: a backslash at the end joins no lines and has nothing to escape; leave it out"),
    ],
)
def test_why_raw_text_cannot_be_split_is_said_with_its_line(text: str, says: str, tmp_path: Path) -> None:
    (fault,) = found(extraArgs=text)
    assert (fault.path, fault.severity) == ("spec.trainer.extraArgs", "refused")
    assert fault.message.startswith(says)
    with pytest.raises(ConfigurationError) as caught:
        argv_says(tmp_path, extraArgs=text)
    assert str(caught.value) == f"trainer.extraArgs: {fault.message}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("maxSeqLen: 4096\n    maxSeqLen: 8192", "key 'maxSeqLen' stands there twice; remove one"),
        ("gpusPerNode: '8'", "spec.trainer.gpusPerNode: is the text '8', must be a whole number; remove the quotes"),
        ("maxSeqLem: 4096", "spec.trainer.maxSeqLem: is no field of a HarborRLJob; did you mean maxSeqLen?"),
        ("resources: {limits: {memory: 1.5}}", "spec.trainer.resources.limits.memory: is 1.5, must be a whole number"),
    ],
)
def test_argv_refuses_a_form_that_validate_refuses_with_the_same_words(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    lines = [line for line in SMOKE.read_text().splitlines() if "resources:" not in line and "gpusPerNode" not in line]
    path.write_text("\n".join(lines).replace("    maxSeqLen: 4096", f"    {text}"))
    assert says in CliRunner().invoke(app, ["validate", str(path)]).stdout
    with pytest.raises(ConfigurationError) as caught:
        argv_command.argv(None, path)
    assert re.match(rf"{re.escape(str(path))}:[0-9]+: {re.escape(says)}", str(caught.value))


def test_of_many_faults_argv_says_the_first_and_their_number(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        argv_says(tmp_path, a=1, b=2, c=3)
    assert str(caught.value).endswith("(and 2 more; harborrl validate names each)")


def test_a_flag_that_the_images_miles_lacks_is_not_advised_to_be_made_fit() -> None:
    (fault,) = found(extraArgs="--fully-async")
    assert fault.message == "Miles 9a00364 knows no flag --fully-async; remove it"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("preset", "trainer.preset decides it"),
        ("expertModelParallelSize", "trainer.parallelism.ep decides it"),
        ("lora_rank", "trainer.lora.rank decides it"),
        ("save", "storage.checkpoints decides it"),
        ("maxSeqLen", "it belongs to spec.trainer.maxSeqLen"),
        ("--rollout-batch-size", "did you mean rolloutBatchSize?"),
        ("numRollouts", "did you mean numRollout?"),
        ("useTis", "remove it, or write it as a flag into spec.trainer.extraArgs"),
        ("name", "remove it, or write it as a flag into spec.trainer.extraArgs"),
    ],
)
def test_a_name_in_the_wrong_place_is_told_where_it_belongs(name: str, says: str) -> None:
    assert faults(smoke(config={name: 1})) == [f"spec.trainer.config.{name}: is no field of a HarborRLJob; {says}"]


def test_each_documented_field_with_another_home_is_told_it() -> None:
    homes = {field.name: about(field).home for field in dataclasses.fields(HarborFrameworkConfig)}
    assert {name: HOMES[name] for name, home in homes.items() if home and name in HOMES} == {
        name: home for name, home in homes.items() if home and name not in FOUND_BY_NAME
    }


FOUND_BY_NAME = {"recipe_args", "extra_args", "custom_config_yaml"}
"""Their home has their name."""


@pytest.mark.parametrize("kind", ["HarborRLjob", "HarborRLJobs", "Job", None])
def test_a_job_whose_kind_is_misspelt_is_refused_and_not_passed_over(kind: str | None) -> None:
    assert faults({**smoke(), "kind": kind}) == [f"kind: is {str(kind)!r}, must be HarborRLJob"]
    group = "batch/v1" if kind == "Job" else "harborrl.dev/v1"
    assert ("kind: is" in faults({**smoke(), "kind": kind, "apiVersion": group})[-1]) == (kind != "Job")


def test_a_job_without_metadata_is_told_what_it_needs() -> None:
    assert faults({**smoke(), "metadata": None}) == ["metadata.name: is required; add it"]


def test_each_home_that_is_one_field_exists() -> None:
    written = {home: faults({**smoke(), "spec": nested(home.split("."))}) for home in HOMES.values() if " " not in home}
    assert [home for home, said in written.items() if any(f"spec.{home}: is no field" in one for one in said)] == []


def nested(path: list[str]) -> Any:
    return {path[0]: nested(path[1:])} if path else None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [1", "line 1: expected `,` or `]`, but got `<stream end>`; correct the YAML"),
        ("seed: 1\n\tlr: 1", "line 2: found character `\\t` that cannot start any token; correct the YAML"),
        ("a: !!python/object:x y", "line 1: could not determine a constructor for the tag …; write the value without"),
        ("a: !x'y'hf_secret z", "line 1: could not determine a constructor for the tag …; write the value without"),
        ("a: *hf_secret", "line 1: found undefined alias …; correct the YAML"),
        ("a: !!float hf_secret", "could not convert string to float: …; correct the YAML"),
    ],
)
def test_what_is_wrong_with_the_yaml_is_said_without_its_text(text: str, says: str) -> None:
    (said,) = faults(smoke(customConfigYaml=text))
    assert said.startswith(f"spec.trainer.customConfigYaml: {says}")
    assert "hf_secret" not in said


def test_no_line_says_its_place_twice() -> None:
    said = faults(smoke(env=[{"name": "NOTE", "value": "sk-ant-api03-" + "x" * 24}]))
    assert said[0].startswith("spec.trainer.env: NOTE looks like a secret")


def test_argv_says_each_adjustment_once(tmp_path: Path) -> None:
    fields = [line.split(": ")[1] for line in argv_says(tmp_path)]
    assert {"checkpoint on request", "traces/trajectory", "agentServer.maxConcurrent"} <= set(fields)
    assert len(fields) == len(set(fields))
