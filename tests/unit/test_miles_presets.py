"""Each preset is its documented launcher, word by word; every difference is listed and explained in a golden file."""

import difflib
import json
from pathlib import Path
from typing import Any

import pytest

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.launch.models import model_types
from harborrl_trainer.launch.presets import presets
from harborrl_trainer.launch.versions import versions
from support import launches
from support.launches import NEW, OLD, OLD_IMAGE, launched, of_preset, value

DATA = Path(__file__).resolve().parents[1] / "data" / "miles"
RECORDED = json.loads((DATA / "miles_argv.json").read_text())
LAUNCHERS = {"glm47-flash-sync": "run.py", "glm47-flash-async": "async", "glm52-lora": "lora"}


def arguments(words: list[str]) -> list[tuple[str, ...]]:
    out: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not out:
            out.append([word])
        else:
            out[-1].append(word)
    return [tuple(argument) for argument in out]


def differences(name: str) -> list[dict[str, Any]]:
    """Hunks between the launcher's arguments and ours, in order."""
    theirs = arguments([Path(RECORDED[LAUNCHERS[name]]["argv"][0]).name, *RECORDED[LAUNCHERS[name]]["argv"][1:]])
    ours = arguments(list(launched(as_recorded(name)).argv))
    matcher = difflib.SequenceMatcher(a=[a[0] for a in theirs], b=[b[0] for b in ours], autojunk=False)
    found: list[dict[str, Any]] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            pairs = zip(theirs[i:j], ours[k:m], strict=True)
            found += [{"launcher": " ".join(a), "ours": " ".join(b)} for a, b in pairs if a != b]
        else:
            found += [{"launcher": " ".join(a), "ours": None} for a in theirs[i:j]]
            found += [{"launcher": None, "ours": " ".join(b)} for b in ours[k:m]]
    return found


def as_recorded(name: str) -> Any:
    """The preset's job with the model, data and ports of the recorded run."""
    recorded = dict(argument for argument in arguments(RECORDED[LAUNCHERS[name]]["argv"]) if len(argument) == 2)
    changes: dict[str, Any] = {
        "model__path": recorded["--hf-checkpoint"],
        "data__jsonl": recorded["--prompt-data"],
        "ports": {"session": int(recorded["--session-server-port"]), "router": int(recorded["--sglang-router-port"])},
    }
    if "--ref-load" in recorded:
        changes["model__refLoad"] = recorded["--ref-load"]
    return of_preset(name, **changes)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_presets_argv_is_the_launchers_but_for_the_listed_differences(name: str) -> None:
    listed = json.loads((DATA / "preset_differences.json").read_text())[name]
    assert [{key: one[key] for key in ("launcher", "ours")} for one in listed] == differences(name)
    assert all(len(one["why"]) > 20 for one in listed)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_presets_environment_is_the_launchers_but_for_the_listed_differences(name: str) -> None:
    theirs = RECORDED[LAUNCHERS[name]]["runtime_env"]["env_vars"]
    ours = launched(as_recorded(name)).env
    listed = json.loads((DATA / "preset_differences.json").read_text())["environment"]
    differing = {key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key)}
    assert differing <= listed.keys()
    assert all(len(listed[key]) > 20 for key in differing)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_preset_names_exactly_the_versions_that_know_all_of_its_flags(name: str) -> None:
    preset = presets()[name]
    assert set(preset.versions) == {commit for commit, known in versions().items() if not preset.missing_in(known)}


@pytest.mark.parametrize("commit", [NEW, OLD])
@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_word_that_a_launch_writes_is_known_to_the_version_it_is_for(name: str, commit: str) -> None:
    if commit not in presets()[name].versions:
        with pytest.raises(ConfigurationError, match=r"needs \d+ flags that Miles 9a00364 does not know \(--"):
            launched(of_preset(name, config__milesSrcCommit=commit))
        return
    made = launched(of_preset(name, config__milesSrcCommit=commit))
    assert [word for word in made.argv if word.startswith("--") and not versions()[commit].knows(word)] == []


@pytest.mark.parametrize("kind", model_types())
def test_every_model_type_makes_a_launch_on_both_versions(kind: str) -> None:
    for commit in (NEW, OLD):
        if kind == "glm5.2-744B-A40B_lora" and commit == OLD:
            continue  # its layers come from a plugin that the older Miles lacks
        made = launched(launches.plain(model__type=kind, config__milesSrcCommit=commit, maxSeqLen=2048))
        assert [word for word in made.argv if word.startswith("--") and not versions()[commit].knows(word)] == []


def test_an_older_miles_gets_what_its_own_launchers_gave_it() -> None:
    made = launched(of_preset("glm47-flash-sync", config__milesSrcCommit=OLD))
    assert made.env["MILES_EXPERIMENTAL_ROLLOUT_REFACTOR"] == "1"
    assert value(made, "--chat-template-path") == ["autofix"]
    assert value(made, "--save-trigger-sentinel") is None
    said = {note.what for note in made.adjustments}
    assert {"checkpoint on request", "traces/trajectory"} <= said


def test_the_image_tells_the_version_where_the_job_does_not() -> None:
    made = launched(launches.written("glm47-flash-sync", image=OLD_IMAGE, explicitConfig=[], config={}))
    assert made.env["MILES_EXPERIMENTAL_ROLLOUT_REFACTOR"] == "1"
    assert not any("milesSrcCommit" in note.what for note in made.adjustments)


def test_an_image_that_nobody_knows_is_taken_for_the_documented_one_and_said() -> None:
    made = launched(launches.written("glm47-flash-sync", image="my/miles:1", explicitConfig=[], config={}))
    note = next(note for note in made.adjustments if note.what == "trainer.config.milesSrcCommit")
    assert "my/miles:1 is not in the table" in note.reason


def test_an_explicit_field_takes_the_place_of_the_presets_value() -> None:
    made = launched(of_preset("glm47-flash-sync", config__lr=1e-5, config__rolloutShuffle=False, config__seed=7))
    assert made.argv.count("--lr") == 1
    assert value(made, "--lr") == ["1e-05"]
    assert value(made, "--rollout-shuffle") is None
    assert value(made, "--seed") == ["7"]


def test_adapters_of_the_job_rank_above_the_presets() -> None:
    made = launched(of_preset("glm52-lora", lora={"rank": 8, "alpha": 8, "targetModules": ["q_proj"]}))
    assert (value(made, "--lora-rank"), value(made, "--sglang-max-lora-rank")) == (["8"], ["8"])
    assert value(made, "--target-modules") == ["q_proj"]


def test_adapters_on_a_whole_models_preset_go_over_the_bridge_and_that_is_said() -> None:
    made = launched(of_preset("glm47-flash-sync", lora={"rank": 16, "alpha": 32, "targetModules": ["q_proj"]}))
    assert value(made, "--megatron-to-hf-mode") == ["bridge"]
    assert value(made, "--ref-load") == ["/mnt/models/MODEL"]
    assert "an adapter is trained" in next(note.reason for note in made.adjustments if note.what == "--ref-load")


def test_the_lora_preset_writes_the_quantised_models_engine_file() -> None:
    made = launched(of_preset("glm52-lora"))
    (path,) = value(made, "--sglang-config") or [""]
    served = json.loads(made.files[path])["sglang"][0]
    assert served["model_path"] == "/mnt/models/MODEL-FP8"
    assert served["server_groups"] == [{"worker_type": "regular", "num_gpus": 32}]
    assert made.models == (Path("/mnt/models/MODEL-FP8"),)
    own = launched(of_preset("glm52-lora", extraArgs="--sglang-config /mnt/models/own.yaml"))
    assert own.models == ()


def test_an_explicit_colocate_takes_the_place_of_the_presets() -> None:
    apart = launched(of_preset("glm47-flash-sync", nodes=2, config__colocate=False))
    assert (value(apart, "--colocate"), value(apart, "--rollout-num-gpus")) == (None, ["8"])
    with pytest.raises(ConfigurationError, match="--colocate cannot be used in mode async"):
        launched(of_preset("glm47-flash-async", nodes=2, config__colocate=True))
