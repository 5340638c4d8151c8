"""Each example is taken by the CRD's schema, admitted by the operator and turned into a launch."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from harborrl_cli.__main__ import app
from harborrl_operator.crd import custom_resource_definition
from harborrl_operator.document import UID, document_of, read_manifest
from harborrl_operator.models import Settings, parse_job
from harborrl_operator.observed import Observed
from harborrl_operator.plan import plan
from harborrl_operator.resolve import resolve
from harborrl_trainer.job import parse_job as parse_document
from harborrl_trainer.launch import launch
from harborrl_trainer.launch.argv_command import dry_start
from support import hrl
from support.launches import value

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples/miles").glob("*.yaml"))


def unknown_fields(value: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    """Fields that the API server would prune or refuse."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return []
    if isinstance(value, list):
        return [hit for one in value for hit in unknown_fields(one, schema.get("items", {}), path)]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    known = schema["properties"]
    missing = [f"{path}.{name}" for name in value if name not in known] + [
        f"{path}.{name} is missing" for name in schema.get("required", ()) if name not in value
    ]
    return missing + [
        hit
        for name in value.keys() & known.keys()
        for hit in unknown_fields(value[name], known[name], f"{path}.{name}")
    ]


def test_the_five_documented_shapes_are_there() -> None:
    assert [example.stem for example in EXAMPLES] == [
        "glm47-flash-async",
        "glm47-flash-sync",
        "glm52-lora",
        "qwen3-4b-code-golf",
        "smoke",
    ]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_known_admitted_and_launchable(example: Path) -> None:
    manifest = yaml.safe_load(example.read_text())
    schema = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert unknown_fields(manifest["spec"], schema, "spec") == []

    job = parse_job({**manifest, "metadata": {**manifest["metadata"], "uid": UID}})
    claims = {volume.pvc: hrl.claim(volume.pvc) for volume in resolve(job, Settings()).volumes.values()}
    decided = plan(job, Observed(claims=claims, sandbox_namespace=hrl.SANDBOXES), Settings(), hrl.NOW)
    assert hrl.condition(decided, "Admitted") == ("Unknown", "AwaitingPreflight"), hrl.message(decided, "Admitted")

    document = parse_document(
        json.dumps(document_of(read_manifest(example.read_text(), str(example)), Settings())["document"])
    )
    made = launch(document, dry_start(document))
    batch = [int((value(made, flag) or ["0"])[0]) for flag in ("--rollout-batch-size", "--n-samples-per-prompt")]
    assert batch[0] * batch[1] >= 4
    assert value(made, "--hf-checkpoint") == [f"/mnt/models/{manifest['spec']['model']['path']}"]


def test_the_documented_example_and_the_smallest_job_are_launchable() -> None:
    for spec in (hrl.DESIGN_SPEC, hrl.MINIMAL_SPEC):
        document = parse_document(json.dumps(resolve(hrl.job(base=spec), Settings()).document(1)))
        assert launch(document, dry_start(document)).argv[0] == "train.py"


def test_the_commands_of_the_page_that_need_no_cluster_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples/quickstart/tasks", tmp_path / "tasks")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "operator"))
    lines = (ROOT / "examples/miles/README.md").read_text().splitlines()
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("harborrl ")]
    assert [words[0] for words in commands] == ["data", "validate", "argv"]
    for words in commands:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.stderr
