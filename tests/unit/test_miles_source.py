"""What a plan relies on, asked of Miles' own source: HARBORRL_MILES_SOURCE names a checkout or a git directory."""

import ast
import logging
import os
import subprocess
from argparse import Namespace
from pathlib import Path

import pytest
import yaml

from harborrl_trainer.miles_engine import sealing
from harborrl_trainer.miles_plan.resume import How, Resume
from harborrl_trainer.miles_plan.view import make_view
from support.miles_files import lora_checkpoint, megatron_checkpoint

SOURCE = os.environ.get("HARBORRL_MILES_SOURCE", "")
COMMITS = ("31f1ca961", "9a003644739f4e6dd509e2e8337e8ae7e571941c")
pytestmark = pytest.mark.skipif(not SOURCE, reason="HARBORRL_MILES_SOURCE names no checkout of Miles")


def text_of(commit: str, path: str) -> str:
    command = ["git", "-C", SOURCE, "show", f"{commit}:{path}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - git as found on PATH


def where_it_begins(commit: str, args: Namespace) -> None:
    """Runs the two statements of Miles' own validation that decide where a run begins, in their order."""
    (function,) = [
        node
        for node in ast.parse(text_of(commit, "miles/utils/arguments.py")).body
        if isinstance(node, ast.FunctionDef) and node.name == "miles_validate_args"
    ]
    ours: list[ast.stmt] = [
        statement
        for statement in function.body
        if isinstance(statement, ast.If)
        and ast.unparse(statement.test) in ("args.megatron_to_hf_mode == 'bridge'", "args.custom_config_path")
    ]
    assert len(ours) == 2, "Miles decides otherwise where a run begins"
    later = function.body[function.body.index(ours[1]) + 1 :]
    assigned = {ast.unparse(target) for node in later for target in _targets(node)}
    assert assigned.isdisjoint({"args.start_rollout_id", "args.load"})
    names = {
        "args": args,
        "os": os,
        "yaml": yaml,
        "logger": logging.getLogger("miles"),
        "resolve_file_arg": lambda path: Path(path).read_text(),
    }
    exec(compile(ast.Module(ours, []), commit, "exec"), names)  # noqa: S102 - Miles' own statements


def _targets(node: ast.AST) -> list[ast.expr]:
    found = [each for each in ast.walk(node) if isinstance(each, ast.Assign)]
    return [target for each in found for target in each.targets]


def arguments(tmp_path: Path, mode: str, load: Path | None, /, **config: object) -> Namespace:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    return Namespace(
        megatron_to_hf_mode=mode,
        load=str(load) if load else None,
        ref_load="/models/ref",
        hf_checkpoint="/models/hf",
        start_rollout_id=None,
        ref_ckpt_step=None,
        custom_config_path=str(tmp_path / "config.yaml"),
    )


@pytest.mark.parametrize("mode", ["bridge", "raw"])
@pytest.mark.parametrize("commit", COMMITS)
def test_a_view_and_the_configuration_file_make_miles_go_on_after_the_checkpoint(
    tmp_path: Path, commit: str, mode: str
) -> None:
    place = megatron_checkpoint(tmp_path / "saved", 3)
    view = tmp_path / "load"
    make_view(view, Resume(How.FULL, 4, place, optimizer=True), tmp_path)
    args = arguments(tmp_path, mode, view, start_rollout_id=4)
    where_it_begins(commit, args)
    assert (args.start_rollout_id, args.load) == (4, str(view))
    assert not getattr(args, "finetune", False)


@pytest.mark.parametrize("mode", ["bridge", "raw"])
@pytest.mark.parametrize("commit", COMMITS)
def test_an_adapter_goes_on_although_miles_finds_no_tracker_file(tmp_path: Path, commit: str, mode: str) -> None:
    place = lora_checkpoint(tmp_path / "saved", 3)
    base = tmp_path / "base"
    base.mkdir()
    view = tmp_path / "load"
    make_view(view, Resume(How.ADAPTER, 4, place, optimizer=True), base)
    args = arguments(tmp_path, mode, None, start_rollout_id=4, load=str(view))
    where_it_begins(commit, args)
    assert (args.start_rollout_id, args.load) == (4, str(view))


@pytest.mark.parametrize("commit", COMMITS)
def test_without_the_configuration_file_miles_would_begin_at_0(tmp_path: Path, commit: str) -> None:
    """The trap that both are for: no tracker file, or `bridge` mode in April, and nothing is said."""
    args = arguments(tmp_path, "bridge" if commit.startswith("9a") else "raw", tmp_path / "none")
    args.start_rollout_id = 4
    where_it_begins(commit, args)
    assert args.start_rollout_id == 0


@pytest.mark.parametrize("commit", COMMITS)
def test_the_names_of_its_files_are_those_that_are_looked_for(commit: str) -> None:
    rollout = text_of(commit, "miles/rollout/data_source.py")
    state = sealing.data_state(Path("SAVE"), 7).relative_to("SAVE").as_posix().replace("7", "{rollout_id}")
    assert state in rollout
    assert sealing.TRACKER in text_of(commit, "miles/utils/arguments.py")
    adapters = text_of(commit, "miles/backends/megatron_utils/lora_utils.py")
    assert "adapter_megatron_" in adapters
    assert "training_state_rank{" in adapters


def test_the_save_trigger_is_looked_at_after_training_and_removed_after_saving() -> None:
    for script in ("train.py", "train_async.py"):
        driver = text_of(COMMITS[0], script)
        order = [
            "actor_model.train(",
            "os.path.exists(args.save_trigger_sentinel)",
            "os.remove(args.save_trigger_sentinel)",
        ]
        places = [driver.rindex(word) for word in order]
        assert places == sorted(places)
        assert "save_trigger_sentinel" not in text_of(COMMITS[1], script)
