"""`python -m harborrl_trainer`: exit codes and last lines that another program and a person can rely on."""

import errno
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harborrl_trainer.__main__ import main
from harborrl_trainer.errors import ConfigurationError, InfrastructureError, StorageError
from harborrl_trainer.failures import failure_of
from support import jobs

ROOT = Path(__file__).resolve().parents[2]


def command(tmp_path: Path, *arguments: str, document: str | None = None) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "job.json"
    path.write_text(document if document is not None else jobs.job(tmp_path).model_dump_json(by_alias=True))
    environment = {"HARBORRL_JOB": str(path), "PYTHONPATH": str(ROOT / "trainer"), "PATH": ""}
    return subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "harborrl_trainer", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_a_wrong_document_ends_with_64_and_one_line(tmp_path: Path) -> None:
    done = command(tmp_path, "run", "--attempt", "1", "--incarnation", "1", document='{"schemaVersion": 1}')
    assert done.returncode == 64
    (line,) = done.stderr.splitlines()
    assert "job.json: job: Field required" in line


def test_wrong_arguments_end_with_64_and_one_line(tmp_path: Path) -> None:
    done = command(tmp_path, "run", "--attempt", "one")
    assert done.returncode == 64
    (line,) = done.stderr.splitlines()
    assert "--attempt" in line


def test_a_miles_run_ends_by_what_its_plan_says(tmp_path: Path) -> None:
    jobs.make_volumes(tmp_path)
    config = tmp_path / "elsewhere.json"
    config.write_text(jobs.job(tmp_path, engine="miles").model_dump_json(by_alias=True))
    done = command(tmp_path, "run", "--config", str(config), document="{}")
    assert done.returncode == 64
    assert done.stdout.splitlines()[-1].startswith(f"{tmp_path}/models/tiny is not a directory.")
    assert (tmp_path / "checkpoints/research/quickstart-5f0c2a9e/a1/i1/launch/plan.json").exists()


def test_nothing_heavy_is_imported_by_the_light_commands(tmp_path: Path) -> None:
    code = (
        "import sys, harborrl_trainer.__main__, harborrl_trainer.preflight.run, harborrl_trainer.supervisor.run;"
        "print(sorted({'torch', 'ray', 'transformers', 'numpy'} & sys.modules.keys()))"
    )
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT / "trainer")},
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.strip() == "[]"


def test_a_preflight_that_breaks_does_not_read_as_a_refusal() -> None:
    broken = failure_of(ValueError("bug"))
    assert (broken.code_for("preflight"), broken.code_for("run")) == (70, 1)
    assert failure_of(ConfigurationError("a: wrong")).code_for("preflight") == 64


def test_a_bad_attempt_in_the_environment_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.json").write_text(jobs.job(tmp_path).model_dump_json(by_alias=True))
    assert main(["supervise"], {"HARBORRL_JOB": str(tmp_path / "job.json"), "HARBORRL_ATTEMPT": "x"}) == 64
    assert capsys.readouterr().err.startswith("HARBORRL_ATTEMPT: 'x'")


def wrapped(cause: Exception) -> Exception:
    """As `raise ... from cause` leaves it."""
    outer = RuntimeError("rollout failed")
    outer.__cause__ = cause
    return outer


class RayTaskError(Exception):
    """The shape of Ray's: the remote exception hangs at `cause`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("remote traceback\nof many lines")
        self.cause = cause


def actor_died() -> Exception:
    kind = type("ActorDiedError", (Exception,), {"__module__": "ray.exceptions"})
    died: Exception = kind("The actor died\nbecause its node did")
    return died


@pytest.mark.parametrize("around", [lambda error: error, wrapped, RayTaskError])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("a: wrong; correct it"), 64),
        (InfrastructureError("agent server: gone; look"), 69),
        (StorageError("b: full; make room"), 74),
        (OSError(errno.ENOSPC, "No space left on device", "/mnt/traces/0.pt"), 74),
        (actor_died(), 69),
    ],
)
def test_a_known_cause_decides_the_exit_code_however_it_is_wrapped(
    around: Callable[[Exception], Exception], error: Exception, code: int
) -> None:
    failure = failure_of(around(error))
    assert failure.exit_code == code
    assert failure.known
    assert "\n" not in failure.sentence


def built_badly(text: str) -> Exception:
    """What Ray raises when an actor's constructor has raised: the text is all that is left of the cause."""
    kind = type("ActorDiedError", (Exception,), {"__module__": "ray.exceptions", "actor_init_failed": True})
    died: Exception = kind(f"The actor died because of an error raised in its creation task, remote()\n  ...\n{text}")
    return died


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("ValueError: weights lack 3 parameters", 1, "ValueError: weights lack 3 parameters"),
        ("OSError: [Errno 5] Input/output error: '/mnt/models/x'", 74, "/mnt/models/x"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'x'", 1, "No such file"),
        ("killed by the OOM killer", 69, "trainer.resources.limits.memory"),
    ],
)
def test_what_an_actors_constructor_raises_is_not_taken_for_lost_infrastructure(
    text: str, code: int, says: str
) -> None:
    failure = failure_of(wrapped(built_badly(text)))
    assert failure.exit_code == code
    assert says in failure.sentence


def test_an_unknown_error_is_the_applications_and_keeps_its_traceback() -> None:
    failure = failure_of(ValueError("bad\nvalue"))
    assert (failure.exit_code, failure.known) == (1, False)
    assert failure.sentence.startswith("ValueError: bad value; ")


def test_a_missing_file_is_no_storage_failure() -> None:
    assert failure_of(FileNotFoundError(errno.ENOENT, "No such file", "x")).exit_code == 1


def test_argv_prints_what_a_preset_would_start_as_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["argv", "--preset", "glm47-flash-sync"], {}) == 0
    printed = capsys.readouterr()
    whole = json.loads(printed.out)
    assert whole.keys() == {"argv", "env"}
    assert whole["argv"][0] == "train.py"
    assert whole["env"]["MILES_ROUTER_EXTERNAL_HOST"] == "glm47-flash-sync-trainer.default.svc"
    assert printed.err == ""


def test_argv_reads_a_job_document_and_says_each_adjustment_and_quirk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = jobs.document(engine="miles", gpusPerNode=8, nodes=1, recipeArgs="--lr 1e-5\n--lr 2e-5")
    document |= {"model": {"path": "/mnt/models/Qwen3-0.6B"}, "image": "own/miles:1"}
    (tmp_path / "job.json").write_text(json.dumps(document))
    assert main(["argv", "--file", str(tmp_path / "job.json")], {}) == 0
    printed = capsys.readouterr()
    assert "--use-miles-router" in json.loads(printed.out)["argv"]
    assert "adjusted: model.type: qwen3-0.6B" in printed.err
    assert "adjusted: trainer.config.milesSrcCommit" in printed.err
    assert "warning: trainer.recipeArgs: --lr is given 2 times" in printed.err


def test_argv_resolves_a_manifest_by_the_operators_own_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "operator"))
    assert main(["argv", "--file", str(ROOT / "examples/miles/smoke.yaml")], {}) == 0
    printed = capsys.readouterr()
    assert "/mnt/models/Qwen3-0.6B" in json.loads(printed.out)["argv"]
    assert "adjusted: trainer.config.evalInterval: omitted" in printed.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--preset", "glm9"], "there is no 'glm9'"),
        (["--file", "/no/such/file"], "cannot be read"),
        ([], "one of the arguments --preset --file is required"),
    ],
)
def test_argv_of_nothing_that_can_be_launched_is_one_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["argv", *arguments], {}) == 64
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.count("\n") == 1
