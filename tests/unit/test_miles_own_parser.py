"""Miles itself judges our command lines, where its source is at hand.

`HARBORRL_MILES_SOURCE` names a git directory of radixark/miles; the flag table's commit is read from it. Miles' modules
are real. Stood in, in a process of its own: every module that Miles asks for and that is not installed (sglang_router,
omegaconf, mooncake ...), all of SGLang but its arguments, and our generate wrapper, by a function with the flags of
Miles' own. Megatron's and SGLang's parsers are made from the flag table, unless `HARBORRL_MEGATRON_SOURCE` and
`HARBORRL_SGLANG_SOURCE` name theirs as well (directories): then they are real, and want torch.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from harborrl_trainer.launch.presets import presets
from support.launches import NEW, launched, of_preset, plain

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {name: os.environ.get(f"HARBORRL_{name.upper()}_SOURCE") for name in ("miles", "megatron", "sglang")}
REASON = "HARBORRL_MILES_SOURCE names no checkout of radixark/miles"

needs_miles = pytest.mark.skipif(SOURCES["miles"] is None, reason=REASON)
needs_all = pytest.mark.skipif(
    None in SOURCES.values(), reason="HARBORRL_{MILES,MEGATRON,SGLANG}_SOURCE are not all set"
)


@pytest.fixture(scope="module")
def miles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Miles at the commit of the table."""
    source = Path(SOURCES["miles"] or "")
    target = tmp_path_factory.mktemp("miles")
    packed = subprocess.run(  # noqa: S603 - git and a path that the caller's environment names
        [shutil.which("git") or "git", "-C", str(source), "archive", NEW], capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(target, filter="data")
    return target


def judged(miles: Path, *options: str, argvs: dict[str, list[str]], depth: str = "parse") -> dict[str, Any]:
    """The verdict on each command line; one process for all, since Miles takes long to import."""
    env = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    questions = json.dumps([{"argv": argv, "env": env, "depth": depth} for argv in argvs.values()])
    command = [sys.executable, "-W", "ignore", str(ROOT / "scripts/miles_parser.py"), "--miles", str(miles), *options]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(  # noqa: S603 - our own script
        command, input=questions, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"verdict"')]
    return dict(zip(argvs, answers, strict=True))


def command_lines() -> dict[str, list[str]]:
    lines = {name: list(launched(of_preset(name)).argv) for name in presets()}
    lines["plain"] = list(launched(plain()).argv)
    lines["plain, asynchronous"] = list(launched(plain(mode="async", nodes=2, config__colocate=False)).argv)
    evaluation = {"jsonl": "/e.jsonl", "interval": 5, "samplesPerPrompt": 1}
    adapters = {"rank": 8, "alpha": 16, "targetModules": ["q_proj"]}
    rich = plain(eval=evaluation, lora=adapters, envNames=["WANDB_API_KEY"], ports__sessionCount=4)
    lines["everything added"] = list(launched(rich, load="/l", adapter="/a", start_rollout=3, optimizer=False).argv)
    return lines


def misspelt() -> dict[str, list[str]]:
    return {"misspelt": [*launched(plain()).argv, "--swiglo"], "no number": [*launched(plain()).argv, "--seed", "x"]}


def check(answers: dict[str, Any]) -> None:
    wrong = {name: answers.pop(name) for name in misspelt()}
    assert {name: answer["verdict"] for name, answer in answers.items()} == dict.fromkeys(answers, "accepted"), answers
    assert wrong["misspelt"]["message"].endswith("unrecognized arguments: --swiglo")
    assert "argument --seed: invalid int value: 'x'" in wrong["no number"]["message"]


QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "intermediate_size": 3072,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
}


@needs_all
def test_the_real_checks_of_miles_and_megatron_pass_a_plain_launch_and_refuse_a_contradiction(
    miles: Path, tmp_path: Path
) -> None:
    """Their whole validation, with the model's configuration; the router's flags are the two that it reads."""
    model = tmp_path / "Qwen3-0.6B"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(QWEN3))
    one = list(launched(plain(model={"path": str(model)})).argv)
    beside = launched(plain(model={"path": str(model)}, mode="async", nodes=2, config__colocate=False))
    argvs = {"plain": one, "asynchronous": list(beside.argv), "wrong": [*one, "--kl-coef", "1", "--kl-loss-coef", "1"]}
    places = ("--megatron", str(SOURCES["megatron"]), "--sglang", str(SOURCES["sglang"]))
    answers = judged(miles, *places, argvs=argvs, depth="validate")
    assert [answers[name]["verdict"] for name in argvs] == ["accepted", "accepted", "refused"], answers
    assert "Only one of kl_coef and kl_loss_coef can be set" in answers["wrong"]["message"]


@needs_miles
def test_miles_parser_with_megatrons_and_sglangs_flags_from_the_table_accepts_every_launch(miles: Path) -> None:
    table = ROOT / "trainer/harborrl_trainer/launch/data/flags-31f1ca9.json"
    check(judged(miles, "--table", str(table), argvs=command_lines() | misspelt()))


@needs_all
def test_the_real_parsers_of_miles_megatron_and_sglang_accept_every_launch(miles: Path) -> None:
    places = ("--megatron", str(SOURCES["megatron"]), "--sglang", str(SOURCES["sglang"]))
    check(judged(miles, *places, argvs=command_lines() | misspelt()))
