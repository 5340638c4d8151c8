"""What is looked at in Miles' container before Miles starts, with the answers in the test's hands."""

import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harborrl_trainer.errors import ConfigurationError, InfrastructureError
from harborrl_trainer.miles_engine import checks
from harborrl_trainer.miles_engine.plan import Checks, Server
from support.miles_run import FLAGS, SHAPED

COMMIT = "31f1ca961a94cb860cec3b2dea34ec332bfa8f76"


@dataclass
class Answers:
    """Each list is answered from its front; the last answer stays."""

    health: list[dict[str, Any] | None] = field(default_factory=lambda: [{"status": "ok", "capacity": 8}])
    local: int | None = 8
    nodes: list[Sequence[float]] = field(default_factory=lambda: [[8.0, 8.0]])
    parser: tuple[str, str] = ("accepted", "")
    seconds: float = 0

    def world(self) -> checks.World:
        return checks.World(
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
            raise checks.NotYetError(f"{what} does not answer")
        return answer


def question(root: Path) -> checks.Question:
    return checks.Question(["train.py", "--num-rollout", "3"], {}, root)


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
            Answers(parser=("refused", "unrecognized arguments: --x")),
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
    (notice,) = checks.run_checks(WANTED, question(tmp_path), Answers(parser=("unknown", "no libcuda")).world())
    assert notice == "Miles' own parser could not be asked beforehand (no libcuda)"


@pytest.mark.parametrize(
    ("words", "verdict"), [((), "accepted"), (("--no-such-flag",), "refused"), (("--num-rollout", "x"), "refused")]
)
def test_the_parser_of_the_checkout_itself_is_asked(words: tuple[str, ...], verdict: str) -> None:
    argv = ["train.py", "--prompt-data", "x", "--num-rollout", "3", *words]
    asked = checks.Question(argv, {**os.environ, "MILES_SHAPED_FLAGS": str(FLAGS)}, SHAPED)
    assert checks.ask_parser(asked)[0] == verdict


def test_a_checkout_without_miles_says_nothing_about_arguments(tmp_path: Path) -> None:
    verdict, said = checks.ask_parser(checks.Question(["train.py"], dict(os.environ), tmp_path))
    assert (verdict, "megatron" in said) == ("unknown", True)


def git(root: Path, head: str, *, packed: str = "") -> Path:
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text(head + "\n")
    if packed:
        (root / ".git" / "packed-refs").write_text(packed)
    return root


def test_the_commit_of_a_checkout_is_read_without_git(tmp_path: Path) -> None:
    assert checks.head_of(tmp_path) is None
    assert checks.head_of(git(tmp_path / "detached", COMMIT)) == COMMIT
    packed = git(tmp_path / "packed", "ref: refs/heads/main", packed=f"# pack-refs\n{COMMIT} refs/heads/main\n")
    assert checks.head_of(packed) == COMMIT
    loose = git(tmp_path / "loose", "ref: refs/heads/main")
    (loose / ".git" / "refs" / "heads").mkdir(parents=True)
    (loose / ".git" / "refs" / "heads" / "main").write_text(COMMIT + "\n")
    assert checks.head_of(loose) == COMMIT


def test_another_commit_than_the_jobs_is_refused_and_an_unknown_one_noted(tmp_path: Path) -> None:
    root = git(tmp_path / "miles", COMMIT)
    assert checks.check_source(root, "31f1ca961") == ""
    with pytest.raises(ConfigurationError, match="is Miles at 31f1ca961, but the job is written for 9a0036447"):
        checks.check_source(root, "9a003644739f4e6dd509e2e8337e8ae7e571941c")
    assert "is not known" in checks.check_source(tmp_path, COMMIT)


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
    with pytest.raises(checks.NotYetError, match="does not answer"):
        checks.ask_health("http://127.0.0.1:9")
    with pytest.raises(ConfigurationError, match="is no HTTP address"):
        checks.ask_health("file:///etc")
