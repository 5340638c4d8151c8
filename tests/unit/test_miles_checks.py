"""What is looked at in Miles' container before Miles starts, with the answers in the test's hands."""

import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from harborrl_trainer.errors import ConfigurationError, InfrastructureError
from harborrl_trainer.launch.environment import CHECKOUTS
from harborrl_trainer.miles_engine import checkout, checks
from harborrl_trainer.miles_engine import world as worlds
from harborrl_trainer.miles_engine.plan import Checks, Server
from support.launches import launched, plain
from support.miles_run import FLAGS, SHAPED

COMMIT = "31f1ca961a94cb860cec3b2dea34ec332bfa8f76"


@dataclass
class Answers:
    """Each list is answered from its front; the last answer stays."""

    health: list[dict[str, Any] | None] = field(default_factory=lambda: [{"status": "ok", "capacity": 8}])
    local: int | None = 8
    nodes: list[Sequence[float]] = field(default_factory=lambda: [[8.0, 8.0]])
    parser: worlds.Answer = field(default_factory=lambda: worlds.Answer("accepted"))
    seconds: float = 0

    def world(self) -> worlds.World:
        return worlds.World(
            health=lambda url: self._next(self.health, url),
            local_gpus=lambda: self.local,
            ray_gpus=lambda: self._next(self.nodes, "Ray"),
            judge=lambda _: self.parser,
            sleep=self._sleep,
            now=lambda: self.seconds,
        )

    def _sleep(self, seconds: float) -> None:
        self.seconds += seconds

    @staticmethod
    def _next(answers: list[Any], what: str) -> Any:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is None:
            raise worlds.NotYetError(f"{what} does not answer")
        return answer


def question(root: Path) -> worlds.Question:
    return worlds.Question(["train.py", "--num-rollout", "3"], {}, root)


WANTED = Checks(server=Server("http://agent", owned=True, slots=8), nodes=2, gpus_per_node=8)


def test_a_container_as_promised_has_nothing_to_note(tmp_path: Path) -> None:
    assert checks.run_checks(WANTED, question(tmp_path), Answers().world()) == []


def test_nodes_and_agent_server_are_waited_for(tmp_path: Path) -> None:
    answers = Answers(health=[None, None, {"status": "ok", "capacity": 8}], nodes=[[8.0], [8.0, 0.0], [8.0, 8.0]])
    checks.run_checks(WANTED, question(tmp_path), answers.world())
    assert answers.seconds > 0


@pytest.mark.parametrize(
    ("answers", "error", "says"),
    [
        (Answers(nodes=[[8.0]]), InfrastructureError, "1 of 2 nodes have joined, 1 with 8 GPUs after 1800 s"),
        (Answers(nodes=[[8.0, 4.0]]), InfrastructureError, "2 of 2 nodes have joined, 1 with 8 GPUs"),
        (Answers(local=4), InfrastructureError, "the head sees 4 of 8 GPUs"),
        (
            Answers(parser=worlds.Answer("refused", "unrecognized arguments: --x")),
            ConfigurationError,
            r"its own parser refuses the arguments \(unrecognized arguments: --x\)",
        ),
        (Answers(health=[None]), InfrastructureError, "http://agent does not answer for 60 s"),
        (
            Answers(health=[{"status": "ok", "capacity": 6}]),
            ConfigurationError,
            "it runs 6 trials at once and the job keeps 8 in flight; raise agentServer.maxConcurrent to at least 8",
        ),
    ],
)
def test_what_is_missing_is_said_with_numbers(
    tmp_path: Path, answers: Answers, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        checks.run_checks(WANTED, question(tmp_path), answers.world())


def test_without_nvidia_smi_rays_own_count_is_relied_on(tmp_path: Path) -> None:
    (notice,) = checks.run_checks(WANTED, question(tmp_path), Answers(local=None).world())
    assert notice.startswith("nvidia-smi is missing")


def test_a_parser_that_cannot_be_asked_is_noted_and_nothing_more(tmp_path: Path) -> None:
    answers = Answers(parser=worlds.Answer("unknown", "no libcuda"))
    (notice,) = checks.run_checks(WANTED, question(tmp_path), answers.world())
    assert notice == "Miles' own parser could not be asked beforehand (no libcuda)"


@pytest.mark.parametrize(
    ("words", "verdict"), [((), "accepted"), (("--no-such-flag",), "refused"), (("--num-rollout", "x"), "refused")]
)
def test_the_parser_of_the_checkout_itself_is_asked(words: tuple[str, ...], verdict: str) -> None:
    argv = ["train.py", "--prompt-data", "x", "--num-rollout", "3", *words]
    asked = worlds.Question(argv, {**os.environ, "MILES_SHAPED_FLAGS": str(FLAGS)}, SHAPED)
    assert worlds.ask_parser(asked).verdict == verdict


def test_a_checkout_without_miles_says_nothing_about_arguments(tmp_path: Path) -> None:
    answer = worlds.ask_parser(worlds.Question(["train.py"], dict(os.environ), tmp_path))
    assert (answer.verdict, answer.stage, "megatron" in answer.said) == ("unknown", "import", True)


def git(root: Path, head: str, *, packed: str = "") -> Path:
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text(head + "\n")
    if packed:
        (root / ".git" / "packed-refs").write_text(packed)
    return root


def test_the_commit_of_a_checkout_is_read_without_git(tmp_path: Path) -> None:
    assert checkout.head_of(tmp_path) is None
    assert checkout.head_of(git(tmp_path / "detached", COMMIT)) == COMMIT
    packed = git(tmp_path / "packed", "ref: refs/heads/main", packed=f"# pack-refs\n{COMMIT} refs/heads/main\n")
    assert checkout.head_of(packed) == COMMIT
    loose = git(tmp_path / "loose", "ref: refs/heads/main")
    (loose / ".git" / "refs" / "heads").mkdir(parents=True)
    (loose / ".git" / "refs" / "heads" / "main").write_text(COMMIT + "\n")
    assert checkout.head_of(loose) == COMMIT


def test_another_commit_than_the_jobs_is_refused_and_an_unknown_one_noted(tmp_path: Path) -> None:
    root = git(tmp_path / "miles", COMMIT)
    assert checkout.check_source(root, "31f1ca961") == ""
    with pytest.raises(ConfigurationError, match="is Miles at 31f1ca961, but the job is written for 9a0036447"):
        checkout.check_source(root, "9a003644739f4e6dd509e2e8337e8ae7e571941c")
    assert "is not known" in checkout.check_source(tmp_path, COMMIT)


def with_miles(root: Path, commit: str) -> Path:
    git(root, commit)
    (root / "miles").mkdir()
    (root / "miles" / "__init__.py").touch()
    return root


def test_a_script_and_actors_of_two_checkouts_are_refused_unless_both_are_one_commit(tmp_path: Path) -> None:
    root, other = with_miles(tmp_path / "src", COMMIT), with_miles(tmp_path / "miles", "9a003644739f")
    search = f"{tmp_path}/code:{other}:{root}"
    with pytest.raises(ConfigurationError, match=f"{root} at 31f1ca961, .* {other} at 9a0036447, which actors import"):
        checkout.check_imports(root, search)
    assert checkout.check_imports(root, f"{tmp_path}/code:{root}:{other}") == ""
    assert checkout.check_imports(root, f"{tmp_path}/code") == ""
    (other / ".git" / "HEAD").write_text(COMMIT)
    assert checkout.check_imports(root, search) == ""
    (other / ".git" / "HEAD").unlink()
    assert "whether both are one commit is not known" in checkout.check_imports(root, search)


def test_what_runs_and_what_is_imported_is_looked_for_in_one_order() -> None:
    made = launched(plain())
    parts = made.env["PYTHONPATH"].split(":")
    assert [part for part in parts if part in CHECKOUTS] == list(CHECKOUTS)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("0.0.0.0", 0))  # noqa: S104 - as Miles binds it
        server.listen()
        yield server.getsockname()[1]


def test_a_port_that_is_taken_is_told_and_nothing_is_done_about_it(taken_port: int) -> None:
    with pytest.raises(InfrastructureError, match=f"port {taken_port} of the head is taken"):
        checks.check_ports([taken_port])
    with socket.create_connection(("127.0.0.1", taken_port), timeout=5):
        pass


def test_what_miles_cannot_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"/none: cannot be read by user \d+ \(No such file or directory\)"):
        checks.check_readable([str(tmp_path / "none")])
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").symlink_to(tmp_path / "gone")
    with pytest.raises(ConfigurationError, match=r"config\.json: cannot be read"):
        checks.check_readable([str(tmp_path / "model")])
    os.unlink(tmp_path / "model" / "config.json")  # noqa: PTH108 - the link, not what it names
    checks.check_readable([str(tmp_path / "model")])


def test_a_health_that_cannot_be_read_is_asked_for_again() -> None:
    with pytest.raises(worlds.NotYetError, match="does not answer"):
        worlds.ask_health("http://127.0.0.1:9")
    with pytest.raises(ConfigurationError, match="is no HTTP address"):
        worlds.ask_health("file:///etc")


def program(place: Path, text: str) -> str:
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)
    return str(place)


def test_nvidia_smi_that_hangs_is_a_failure_of_the_node(tmp_path: Path) -> None:
    hanging = program(tmp_path / "nvidia-smi", "exec tail -f /dev/null")
    with pytest.raises(InfrastructureError, match=r"nvidia-smi of the head does not answer within 0\.2 s"):
        worlds.count_local_gpus(hanging, seconds=0.2)
    whole = program(tmp_path / "other", "echo 'GPU 0: H200 (UUID: x)'; echo 'GPU 1: H200 (UUID: y)'")
    assert worlds.count_local_gpus(whole) == 2


@pytest.mark.parametrize("script", ["raise SystemExit('no nodes')", "print('[8.0')", "", "while True: pass"])
def test_ray_that_hangs_or_talks_nonsense_is_asked_again(script: str) -> None:
    with pytest.raises(worlds.NotYetError, match="nodes"):
        worlds.count_ray_gpus(script, seconds=0.2)
    assert worlds.count_ray_gpus("print([8, 4.0])") == [8.0, 4.0]


def test_a_ray_that_hangs_while_nodes_join_is_waited_for() -> None:
    answers = Answers(nodes=[[8.0, 8.0]])
    hanging = iter([True, True])

    def ray() -> Sequence[float]:
        return worlds.count_ray_gpus("while True: pass", seconds=0.1) if next(hanging, False) else [8.0, 8.0]

    checks.await_nodes(WANTED, replace(answers.world(), ray_gpus=ray))
    assert answers.seconds > 0


def test_a_parser_that_hangs_is_one_that_cannot_be_asked(tmp_path: Path) -> None:
    (tmp_path / "megatron").mkdir()
    (tmp_path / "megatron" / "__init__.py").write_text("while True: pass\n")
    asked = worlds.Question(["train.py"], dict(os.environ), tmp_path)
    assert worlds.ask_parser(asked, seconds=0.3) == worlds.Answer("unknown", "it takes longer than 0.3 s")
