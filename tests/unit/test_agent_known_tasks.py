"""A task is read once for all its samples, and again when any of its files has changed."""

import os
import re
import shutil
from pathlib import Path

import pytest
from harbor.models.task.task import Task

from harborrl_agent_server.known_tasks import KEPT, KnownTasks
from support.agent_http import replies
from support.agent_server import MARKS, stage
from support.agent_tasks import script, write_task

pytestmark = MARKS


def test_a_known_task_is_what_harbor_itself_finds(tasks: Path) -> None:
    known, own = KnownTasks().task(tasks / "write-greeting"), Task(tasks / "write-greeting")
    assert (known.name, known.instruction, known.config, known.checksum) == (
        own.name,
        own.instruction,
        own.config,
        own.checksum,
    )


def test_an_unchanged_task_is_read_once(tasks: Path) -> None:
    known = KnownTasks()
    first, second = known.task(tasks / "write-greeting"), known.task(tasks / "write-greeting")
    assert first.file_filter is second.file_filter
    assert first.paths is second.paths


def test_what_one_trial_does_to_its_configuration_no_other_sees(tasks: Path) -> None:
    known = KnownTasks()
    known.task(tasks / "write-greeting").config.environment.cpus = 64
    assert known.task(tasks / "write-greeting").config.environment.cpus != 64


@pytest.mark.parametrize("name", ["instruction.md", "task.toml", "tests/test.sh", "tests", "environment", "steps"])
def test_a_task_shows_nobody_a_file_of_the_servers(tasks: Path, tmp_path: Path, name: str) -> None:
    secret, link = tmp_path / "secret", tasks / "write-greeting" / name
    if link.is_dir():
        link.rename(secret)
    elif link.exists():
        secret.write_bytes(link.read_bytes())
    link.unlink(missing_ok=True)
    link.symlink_to(secret)
    with pytest.raises(ValueError, match=r"leads out of|must stay within the task"):
        KnownTasks().task(tasks / "write-greeting")


@pytest.mark.parametrize(
    ("name", "linked"),
    [
        *((name, linked) for name in ("instruction.md", "README.md", ".gitignore") for linked in (False, True)),
        *((name, False) for name in ("tests/pipe", "environment/pipe")),
    ],
)
def test_a_pipe_is_refused_before_anybody_waits_for_its_other_end(tasks: Path, name: str, linked: bool) -> None:
    place = tasks / "write-greeting" / name
    place.unlink(missing_ok=True)
    os.mkfifo(tasks / "pipe" if linked else place)
    if linked:
        place.symlink_to(tasks / "pipe")
    with pytest.raises(ValueError, match="is a pipe, a socket or a device"):
        KnownTasks().task(tasks / "write-greeting")


@pytest.mark.parametrize("target", [".", "..", "/"])
def test_a_link_without_end_is_not_followed(tasks: Path, target: str) -> None:
    (tasks / "write-greeting" / "environment" / "rootfs").symlink_to(target)
    known = KnownTasks().task(tasks / "write-greeting")
    assert known.checksum


def test_what_is_known_is_not_read_again_for_the_next_trial(tasks: Path) -> None:
    known, task = KnownTasks(), tasks / "write-greeting"
    first, second = known.task(task), known.task(task)
    read = first.checksum
    shutil.rmtree(task / "tests")
    assert second.checksum == read


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("[verifier]\ntimeout_sec = nan", "verifier.timeout_sec = nan"),
        ("[verifier]\ntimeout_sec = 0", "verifier.timeout_sec = 0: a limit above 0 s"),
        ("build_timeout_sec = nan", "environment.build_timeout_sec = nan"),
        ("build_timeout_sec = -3", "environment.build_timeout_sec = -3"),
        ("[environment.healthcheck]\ncommand = 'true'\ninterval_sec = nan", "healthcheck.interval_sec = nan"),
        ("[[verifier.collect]]\ncommand = 'true'\ntimeout_sec = nan", "verifier.collect.0.timeout_sec = nan"),
    ],
)
def test_a_time_that_is_none_is_refused_with_its_field(tasks: Path, toml: str, said: str) -> None:
    write_task(tasks, "odd", toml=toml)
    with pytest.raises(ValueError, match=re.escape(said)):
        KnownTasks().task(tasks / "odd")


@pytest.mark.parametrize(
    ("environment", "toml", "said"),
    [
        ('workdir = "/app"\nenv = {A = "x\\u0000y"}', "", "environment.env.A holds a NUL"),
        ('workdir = "/a\\u0000b"', "", "environment.workdir holds a NUL"),
        ('env = {A = "' + "x" * 70_000 + '"}', "", "environment.env.A is longer than 65536 bytes"),
        ("", '[verifier.env]\nB = "' + "x" * 70_000 + '"', "verifier.env.B is longer than 65536 bytes"),
    ],
)
def test_text_that_no_process_can_be_given_is_refused_with_its_field(
    tasks: Path, environment: str, toml: str, said: str
) -> None:
    write_task(tasks, "odd", environment=environment, toml=toml)
    with pytest.raises(ValueError, match=re.escape(said)):
        KnownTasks().task(tasks / "odd")


def test_a_limit_that_is_endless_is_left_to_the_servers_own(tasks: Path) -> None:
    write_task(tasks, "endless", toml="[agent]\ntimeout_sec = 0\n[verifier]\ntimeout_sec = inf")
    assert KnownTasks().task(tasks / "endless").config.verifier.timeout_sec == float("inf")


async def test_a_task_of_several_steps_is_refused_before_anything_is_spent_on_it(tasks: Path) -> None:
    """Each was run and graded to its end, and then called a sandbox that never started."""
    step = write_task(tasks, "steps", toml='[[steps]]\nname = "one"') / "steps" / "one"
    (step / "tests").mkdir(parents=True)
    script(step / "tests" / "test.sh", "echo 1 >/logs/verifier/reward.txt")
    (step / "instruction.md").write_text("Write hello.")
    async with stage(tasks, replies("TASK_DONE")) as server:
        answer = await server.run(instance_id="steps")
        assert server.session.requests == []
    assert answer["exit_status"] == "TaskNotFound"
    assert "[[steps]]: tasks of several steps are not run here" in answer["message"]


def test_tasks_may_share_a_file(tasks: Path) -> None:
    task = tasks / "write-greeting"
    (task / "instruction.md").rename(tasks / "shared.md")
    (task / "instruction.md").symlink_to("../shared.md")
    assert KnownTasks().task(task).instruction == (tasks / "shared.md").read_text()


@pytest.mark.parametrize("change", ["instruction.md", "tests/new", "tests/.harborignore", "environment/Dockerfile"])
def test_a_file_that_was_changed_or_added_is_seen(tasks: Path, change: str) -> None:
    known = KnownTasks()
    before = known.task(tasks / "write-greeting")
    (tasks / "write-greeting" / change).write_text("something else")
    after = known.task(tasks / "write-greeting")
    assert after.file_filter is not before.file_filter
    assert after.instruction == Task(tasks / "write-greeting").instruction


def test_a_file_that_was_replaced_by_one_of_the_same_size_and_age_is_seen(tasks: Path) -> None:
    known, path = KnownTasks(), tasks / "write-greeting" / "instruction.md"
    old, seen = path.read_text(), path.stat()
    known.task(tasks / "write-greeting")
    path.write_text("x" * len(old))
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert known.task(tasks / "write-greeting").instruction == "x" * len(old)


def test_a_directory_that_is_no_task_any_more_is_refused(tasks: Path) -> None:
    known = KnownTasks()
    known.task(tasks / "write-greeting")
    (tasks / "write-greeting" / "tests" / "test.sh").unlink()
    with pytest.raises(FileNotFoundError):
        known.task(tasks / "write-greeting")


def test_the_task_that_was_not_used_for_longest_is_forgotten(tasks: Path) -> None:
    known = KnownTasks()
    for number in range(3):
        write_task(tasks, f"t{number}")
    first = known.task(tasks / "t0")
    for _ in range(KEPT):
        known._known[Path(f"/{_}")] = known._known[tasks / "t0"]
    known.task(tasks / "t1")
    assert len(known._known) <= KEPT + 1
    assert known.task(tasks / "t0").file_filter is not first.file_filter


async def test_the_next_trial_is_graded_by_the_tests_as_they_are_by_then(tasks: Path) -> None:
    async with stage(tasks, replies("TASK_DONE")) as server:
        before = await server.run()
        script(tasks / "write-greeting" / "tests" / "test.sh", "echo 1 >/logs/verifier/reward.txt")
        after = await server.run()
    assert (before["reward"], after["reward"]) == (0.0, 1.0)
