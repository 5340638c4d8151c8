"""The question that our image writes and Miles' image answers, each as its container of the preflight pod runs it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harborrl_operator.preflight_findings import parse
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.launch.seam import Launch, Start
from harborrl_trainer.miles_engine import asked
from harborrl_trainer.miles_engine.asked import Asked
from harborrl_trainer.miles_engine.parser_preflight import result
from harborrl_trainer.miles_engine.world import Answer, ask_parser
from harborrl_trainer.preflight.question import write_question
from support import reached
from support.launches import plain
from support.miles_run import FLAGS, SHAPED, Run, launch

COMMIT = "31f1ca961a94cb860cec3b2dea34ec332bfa8f76"


def answered(folder: Path, **environment: str) -> dict[str, Any]:
    """By the module as it was copied, with nothing else of ours on its path."""
    place = folder / "result.json"
    command = [sys.executable, "-m", "harborrl_trainer.miles_engine.parser_preflight"]
    names = {"PYTHONPATH": str(folder), "MILES_SHAPED_FLAGS": str(FLAGS), "HARBORRL_MILES_ROOT": str(SHAPED)}
    done = subprocess.run(  # noqa: S603 - our own module
        [*command, str(folder / asked.NAME), str(place)],
        env={"PATH": os.environ["PATH"], **names, **environment},
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(place.read_text())
    assert parse(place.read_text()) is not None  # as the operator reads it
    reached.note_document(document)
    return document


def with_words(*words: str) -> Any:
    def make(job: JobDocument, start: Start) -> Launch:
        made = launch(job, start)
        return replace(made, argv=(*made.argv, *words))

    return make


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.of(tmp_path / "volumes")


def test_arguments_of_the_products_own_launch_are_accepted(tmp_path: Path) -> None:
    model = tmp_path / "Qwen3-0.6B"
    model.mkdir()
    write_question(plain(model={"path": str(model)}, customConfigYaml="num_epoch: 2\n"), tmp_path)
    assert (tmp_path / "launch" / "custom-config.yaml").read_text() == "num_epoch: 2\n"
    assert answered(tmp_path) == {"schemaVersion": 1, "ok": True, "findings": [], "facts": {}}


@pytest.mark.parametrize(
    ("words", "said"), [(("--misspelt", "1"), "--misspelt"), (("--num-rollout", "x"), "invalid int value: 'x'")]
)
def test_what_argparse_refuses_is_a_refusal(tmp_path: Path, run: Run, words: tuple[str, ...], said: str) -> None:
    write_question(run.job, tmp_path, with_words(*words))
    (finding,) = answered(tmp_path)["findings"]
    assert (finding["severity"], finding["reason"]) == ("refuse", "ArgumentConflict")
    assert said in finding["message"]


def test_what_only_miles_further_checks_object_to_is_a_warning(tmp_path: Path, run: Run) -> None:
    write_question(run.job, tmp_path, with_words("--num-rollout", "0"))
    (finding,) = answered(tmp_path)["findings"]
    assert (finding["severity"], finding["reason"]) == ("warn", "ArgumentConflict")
    assert "num_rollout must be positive" in finding["message"]


def test_an_image_without_miles_or_with_another_commit_is_refused(tmp_path: Path, run: Run) -> None:
    write_question(run.job, tmp_path, launch)
    (finding,) = answered(tmp_path, HARBORRL_MILES_ROOT=str(tmp_path))["findings"]
    assert (finding["severity"], finding["reason"]) == ("refuse", "EngineUnavailable")
    assert "train.py of Miles is not in" in finding["message"]
    root = tmp_path / "miles"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text(COMMIT)
    (root / "train.py").touch()
    question = Asked(("train.py",), {}, (str(root),), "9a003644739f")
    document = result(question, {}, lambda _: Answer("accepted"))
    assert "is Miles at 31f1ca961, but the job is written for 9a0036447" in document["findings"][0]["message"]


def test_a_parser_that_cannot_be_asked_is_a_remark(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    question = Asked(("train.py",), {}, (str(tmp_path),))
    document = result(question, {}, lambda _: Answer("unknown", "ImportError: libcuda.so.1", "import"))
    reached.note_document(document)
    assert (document["ok"], document["findings"][0]["reason"]) == (True, "ParserNotAsked")
    assert "(ImportError: libcuda.so.1): the driver asks it at its start" in document["findings"][0]["message"]


STAND_IN = {
    "torch/__init__.py": "class cuda:\n    is_available = staticmethod(lambda: True)\n",
    "megatron/training/arguments.py": "def parse_args(extra_args_provider):\n    extra_args_provider()\n",
    "miles/utils/arguments.py": (
        "def get_miles_extra_args_provider(_):\n    return lambda: __import__('their_function')\n"
    ),
    "their_function.py": "open('/mnt/their-own-volume/prices.json')\n",
    "train.py": "",
}


def test_a_users_function_that_misses_what_the_trainer_has_is_a_remark_and_no_refusal(tmp_path: Path) -> None:
    for name, text in STAND_IN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    document = result(Asked(("train.py",), {}, (str(tmp_path),)), os.environ, ask_parser)
    (finding,) = document["findings"]
    assert (document["ok"], finding["severity"], finding["reason"]) == (True, "warn", "ParserNotAsked")
    assert "No such file or directory: '/mnt/their-own-volume/prices.json'" in finding["message"]


def test_arguments_that_cannot_be_made_are_left_to_the_preflights_own_checks(tmp_path: Path, run: Run) -> None:
    def refuse(_job: JobDocument, _start: Start) -> Launch:
        raise ConfigurationError("trainer.preset: there is no such preset")

    write_question(run.job, tmp_path, refuse)
    assert answered(tmp_path)["findings"] == []


def test_miles_is_asked_with_the_environment_of_the_launch_over_the_pods(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    seen: list[dict[str, str]] = []

    def judge(question: Any) -> Answer:
        seen.append(dict(question.environment))
        assert question.depth == "validate"
        return Answer("accepted")

    result(Asked(("train.py",), {"A": "launch"}, (str(tmp_path),)), {"A": "pod", "B": "pod"}, judge)
    assert seen == [{"A": "launch", "B": "pod"}]
