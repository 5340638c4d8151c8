"""Operator and trainer say the same of a job's arguments, word by word: before anything is held, and before a start."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.alias_generators import to_camel

from harborrl_operator import miles_rules
from harborrl_operator.arguments import read_raw_arguments
from harborrl_operator.engine_rules import engine_accepts_arguments
from harborrl_operator.miles_rules.admission import RULES as THEIRS
from harborrl_operator.miles_table import PRESETS
from harborrl_operator.models import Settings
from harborrl_operator.models.trainer import TrainerSpec
from harborrl_operator.resolve import ResolvedJob, resolve
from harborrl_operator.secret_checks import environment_leaves_ours_alone
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import parse_job
from harborrl_trainer.launch import launch
from harborrl_trainer.launch.argv_command import dry_start
from harborrl_trainer.launch.copy_rules import modules
from harborrl_trainer.launch.model_rules import MODEL as OF_THE_MODEL
from harborrl_trainer.launch.rules.admission import RULES
from harborrl_trainer.launch.rules.reserved import EVALUATION, RESERVED
from harborrl_trainer.launch.rules.variables import VARIABLES
from harborrl_trainer.launch.versions import versions
from support import hrl
from support.broken_rules import ADMISSION, MODEL, Changes
from support.launches import NEW

CONFIG = {"numRollout": 3, "rolloutBatchSize": 2, "nSamplesPerPrompt": 4, "globalBatchSize": 8, "milesSrcCommit": NEW}
SPEC: dict[str, Any] = {
    "model": {"path": "Qwen3-0.6B"},
    "data": {"jsonl": "train.jsonl"},
    "trainer": {"engine": "miles", "gpusPerNode": 8, "maxSeqLen": 16384, "allowPartialStart": True, "config": CONFIG},
}


def resolved(changes: Changes, base: dict[str, Any] = SPEC) -> ResolvedJob:
    """`changes` as `launches.plain` takes them, below `trainer` unless they name another part."""
    elsewhere = ("model", "eval", "data")
    paths = {
        path.replace("__", ".") if path.startswith(elsewhere) else f"trainer.{path.replace('__', '.')}": value
        for path, value in changes.items()
    }
    return resolve(hrl.job(paths, base=base), Settings(miles_image="an/image"))


def said_at_admission(job: ResolvedJob) -> str | None:
    verdict = engine_accepts_arguments(job, hrl.world())
    return verdict.message.removesuffix(".") if verdict else None


def said_by_the_launch(job: ResolvedJob) -> str | None:
    document = parse_job(json.dumps(job.document(attempt=1)))
    try:
        launch(document, dry_start(document))
    except ConfigurationError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("changes", "says"), ADMISSION, ids=[says for _, says in ADMISSION])
def test_a_rule_of_admission_is_told_in_the_same_words_by_both(changes: Changes, says: str) -> None:
    job = resolved(changes)
    assert says in (said_at_admission(job) or "nothing")
    assert said_at_admission(job) == said_by_the_launch(job)


@pytest.mark.parametrize(("changes", "says"), MODEL, ids=[says for _, says in MODEL])
def test_what_only_the_model_tells_is_left_to_the_launch(changes: Changes, says: str) -> None:
    job = resolved(changes)
    assert said_at_admission(job) is None
    assert says in (said_by_the_launch(job) or "nothing")


def test_every_rule_has_a_case_but_those_over_a_flag_that_is_ours() -> None:
    ours = [rule for rule in RULES if rule.says.startswith("--use-session-server") or "session server v2" in rule.says]
    assert (len(ours), len(ADMISSION) + len(ours)) == (4, len(RULES))
    assert len(MODEL) + 1 == len(OF_THE_MODEL)
    assert [rule.says for rule in RULES] == [rule.says for rule in THEIRS]


def test_the_operators_rules_are_the_trainers_byte_by_byte() -> None:
    folder = Path(miles_rules.__file__).parent
    assert {path.name: path.read_text() for path in folder.glob("*.py")} == dict(modules())


@pytest.mark.parametrize("flag", RESERVED)
@pytest.mark.parametrize("field", ["recipe_args", "extra_args", "custom_config_yaml"])
def test_a_reserved_flag_is_refused_in_the_same_words_by_both(flag: str, field: str) -> None:
    name = flag.removeprefix("--").replace("-", "_")
    text = f"{name}: 1" if field == "custom_config_yaml" else f"{flag} 1"
    (told,) = read_raw_arguments(TrainerSpec.model_validate({field: text})).reserved
    job = resolved({to_camel(field): text})
    assert said_by_the_launch(job) == f"{told}; remove it"


@pytest.mark.parametrize("flag", EVALUATION)
def test_with_spec_eval_its_flags_are_reserved_by_both_and_without_it_by_none(flag: str) -> None:
    raw, evaluation = TrainerSpec.model_validate({"extra_args": f"{flag} 5"}), {"jsonl": "eval.jsonl"}
    (told,) = read_raw_arguments(raw, evaluates=True).reserved
    job = resolved({"extraArgs": f"{flag} 5", "eval": evaluation})
    assert job.raw.reserved == (told,)
    assert said_by_the_launch(job) == f"{told}; remove it"
    assert resolved({"extraArgs": f"{flag} 5"}).raw.reserved == ()


@pytest.mark.parametrize("names", [[name] for name in VARIABLES] + [["A", "B", "A"]])
def test_a_variable_of_ours_or_one_given_twice_is_refused_in_the_same_words_by_both(names: list[str]) -> None:
    job = resolved({"env": [{"name": name, "value": str(at)} for at, name in enumerate(names)]})
    verdict = environment_leaves_ours_alone(job, hrl.world())
    assert verdict is not None
    assert verdict.message == f"{said_by_the_launch(job)}."
    assert said_by_the_launch(resolved({"env": [{"name": "A", "value": "1"}]})) is None


@pytest.mark.parametrize("commit", versions())
def test_no_flag_is_free_for_one_and_reserved_for_the_other(commit: str) -> None:
    names = [name for name in versions()[commit].flags if name not in RESERVED]
    taken = [
        name for name in names if read_raw_arguments(TrainerSpec.model_validate({"extra_args": f"{name} 1"})).reserved
    ]
    assert taken == []


FLAGS = {
    "--use-tis": (None,),
    "--use-rollout-logprobs": (None,),
    "--kl-coef": ("0.1", "0"),
    "--kl-loss-coef": ("0.01", "0.00"),
    "--advantage-estimator": ("ppo", "reinforce_plus_plus", "grpo"),
    "--normalize-advantages": (None,),
    "--rollout-batch-size": ("4", "6"),
    "--over-sampling-batch-size": ("1", "8"),
    "--global-batch-size": ("8", "64", "5"),
    "--num-steps-per-rollout": ("1", "2"),
    "--max-seq-len": ("512", "65536"),
    "--rollout-max-response-len": ("1024", "8192"),
    "--use-dynamic-batch-size": (None,),
    "--max-tokens-per-gpu": ("8192",),
    "--balance-by-flops": (None,),
    "--qkv-format": ("bshd",),
    "--sglang-dp-size": ("2",),
    "--sglang-enable-dp-attention": (None,),
    "--rollout-num-gpus-per-engine": ("3", "2"),
    "--decoder-last-pipeline-num-layers": ("3",),
    "--tensor-model-parallel-size": ("2", "3"),
    "--pipeline-model-parallel-size": ("2",),
    "--pause-generation-mode": ("in_place", "retract"),
    "--update-weight-transfer-mode": ("p2p", "broadcast"),
    "--eval-interval": ("5",),
    "--save-interval": ("0", "5"),
    "--custom-rm-path": ("own.reward",),
    "--reward-key": ("score",),
    "--partial-rollout": (None,),
    "--debug-exit-after-rollout": ("1", "5000"),
    "--offload-train-target": ("disk", "cpu"),
    "--offload-train": (None,),
}
CHOSEN = st.dictionaries(st.sampled_from(list(FLAGS)), st.integers(0, 2), max_size=4)
SHAPES = st.fixed_dictionaries(
    {"nodes": st.sampled_from([2, 4])},
    optional={
        "parallelism": st.sampled_from([{"tp": 4, "ep": 8}, {"tp": 8, "pp": 2}, {"cp": 3}, {"ep": 5}]),
        "lora": st.just({"rank": 8, "alpha": 16, "targetModules": ["q_proj"]}),
        "eval": st.just({"jsonl": "eval.jsonl", "interval": 20}),
        "config__actorNodes": st.just(1),
        "config__klCoef": st.just(0.1),
        "config__colocate": st.booleans(),
    },
)
STARTS = st.sampled_from([("", "sync"), ("", "async"), *((name, known.mode) for name, known in PRESETS.items())])


OF_THE_LAUNCH = tuple("trainer: " + rule.says.partition("{")[0] for rule in OF_THE_MODEL)


@settings(max_examples=80, deadline=None)
@given(start=STARTS, chosen=CHOSEN, shape=SHAPES)
def test_admission_refuses_nothing_that_the_launch_takes_and_misses_no_rule_that_it_can_judge(
    start: tuple[str, str], chosen: dict[str, int], shape: Changes
) -> None:
    preset, mode = start
    pairs = [(flag, FLAGS[flag][at % len(FLAGS[flag])]) for flag, at in chosen.items()]
    flags = " ".join(f"{flag} {value or ''}" for flag, value in pairs)
    small = {} if preset else {f"config__{name}": size for name, size in CONFIG.items()}
    base = {**SPEC, "trainer": {**SPEC["trainer"], "config": {}, "maxSeqLen": None}}
    job = resolved(
        {**small, "config__milesSrcCommit": NEW, "preset": preset or None, "mode": mode, "extraArgs": flags, **shape},
        base,
    )
    early, late = said_at_admission(job), said_by_the_launch(job)
    if early is not None:
        assert late is not None
    sizes_are_written = preset == "" or None not in PRESETS[preset].parallelism.values()
    if late and late.startswith("trainer: ") and not late.startswith(OF_THE_LAUNCH) and sizes_are_written:
        assert early == late
