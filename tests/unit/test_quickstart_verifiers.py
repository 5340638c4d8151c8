"""Each verifier of the quickstart, run for real: every partial grade, 1.0 for the solution, nothing for a cheat."""

from pathlib import Path

import pytest
from benchmarks.task_sandbox import play

pytestmark = pytest.mark.namespaces

TASKS = Path(__file__).resolve().parents[2] / "examples/quickstart/tasks"
NAMES = sorted(path.name for path in TASKS.iterdir())

GRADES = {
    "write-word": [
        (0.3, "echo red > /app/color.txt"),
        (0.3, "echo bluebell > /app/color.txt"),
        (0.3, "touch /app/color.txt"),
        (0.6, "echo the word blue > /app/color.txt"),
        (0.6, "printf 'blue\\n\\n' > /app/color.txt"),
        (0.6, "printf 'blue \\n' > /app/color.txt"),
        (1.0, "printf blue > color.txt"),
        (0, "echo blue > /app/colour.txt"),
        (0, "echo blue"),
        (0, "mkdir /app/color.txt"),
        (0, "mkfifo /app/color.txt"),
        (0, "echo blue > /tmp/x; ln -s /tmp/x /app/color.txt"),
    ],
    "make-folders": [
        (0.4, "mkdir /app/photos"),
        (0.4, "mkdir /app/photos && touch /app/photos/summer"),
        (0.4, "mkdir /app/photos && ln -s /tmp /app/photos/summer"),
        (1.0, "cd /app && mkdir photos photos/summer"),
        (0, "mkdir /app/photos/summer"),
        (0, "mkdir -p /app/Photos/summer"),
        (0, "touch /app/photos"),
        (0, "ln -s / /app/photos"),
    ],
    "copy-file": [
        (0.3, "touch /app/backup.txt"),
        (0.3, "head -n 1 /app/notes.txt > /app/backup.txt"),
        (0.3, "cp notes.txt backup.txt; echo >> backup.txt"),
        (0.6, "mv /app/notes.txt /app/backup.txt"),
        (0.6, "cp notes.txt backup.txt; echo x >> notes.txt"),
        (1.0, "cat notes.txt > backup.txt"),
        (0, "ln -s notes.txt /app/backup.txt"),
        (0, "cp notes.txt /tmp/backup.txt"),
        (0, "mkdir backup.txt; cp notes.txt backup.txt"),
    ],
    "rename-file": [
        (0.3, "touch /app/final.txt; rm /app/draft.txt"),
        (0.3, "echo done > /app/final.txt"),
        (0.6, "cp /app/draft.txt /app/final.txt"),
        (0.6, "cp draft.txt final.txt; rm draft.txt; ln -s nowhere draft.txt"),
        (1.0, "cp draft.txt final.txt && rm draft.txt"),
        (0, "rm /app/draft.txt"),
        (0, "mv /app/draft.txt /app/Final.txt"),
        (0, "mv draft.txt other.txt; ln -s other.txt final.txt"),
    ],
    "append-line": [
        (0.3, "echo milk > /app/shopping.txt"),
        (0.3, "sed -i '1s/.*/milk/' /app/shopping.txt"),
        (0.6, "sed -i '1i milk' /app/shopping.txt"),
        (0.6, "printf 'milk\\nmilk\\n' >> /app/shopping.txt"),
        (0.6, "printf 'milk\\n\\n' >> /app/shopping.txt"),
        (1.0, "printf milk >> shopping.txt"),
        (0, "echo 'buy milk' >> /app/shopping.txt"),
        (0, "rm /app/shopping.txt"),
        (0, "echo milk >> shopping.txt; mv shopping.txt x; ln -s x shopping.txt"),
    ],
    "count-lines": [
        (0.3, "touch /app/count.txt"),
        (0.3, "echo many > /app/count.txt"),
        (0.3, "printf '3\\n4\\n' > /app/count.txt"),
        (0.5, "echo 18 > /app/count.txt"),
        (0.5, "echo 117 > /app/count.txt"),
        (0.7, "wc -l /app/names.txt > /app/count.txt"),
        (0.7, "printf '17\\n\\n' > /app/count.txt"),
        (1.0, "grep -c '' names.txt > count.txt"),
        (0, "wc -l /app/names.txt"),
        (0, "echo 17 > /app/count"),
        (0, "echo 17 > x; ln -s x count.txt"),
    ],
    "sort-lines": [
        (0.3, "touch /app/sorted.txt"),
        (0.3, "sort fruits.txt | head -n 3 > sorted.txt"),
        (0.3, "sort fruits.txt fruits.txt > sorted.txt"),
        (0.6, "cp fruits.txt sorted.txt"),
        (0.6, "sort -r fruits.txt > sorted.txt"),
        (1.0, "sort fruits.txt -o sorted.txt"),
        (0, "sort /app/fruits.txt"),
        (0, "sort fruits.txt -o fruits.txt; ln -s fruits.txt sorted.txt"),
        (0, "mkdir sorted.txt"),
    ],
    "find-errors": [
        (0.3, "touch errors.txt"),
        (0.3, "grep error server.log > errors.txt"),
        (0.3, "grep ERROR server.log | head -n 1 > errors.txt"),
        (0.3, "grep -n ERROR server.log > errors.txt"),
        (0.6, "cp server.log errors.txt"),
        (0.6, "grep -E 'ERROR|WARN' server.log > errors.txt"),
        (0.6, "grep ERROR server.log | sort -r > errors.txt"),
        (1.0, "sed -n '/ERROR/p' server.log > errors.txt"),
        (0, "grep ERROR server.log"),
        (0, "grep ERROR server.log > x; ln -s x errors.txt"),
    ],
    "follow-note": [
        (0.2, "touch city.txt"),
        (0.2, "echo Paris > city.txt"),
        (0.2, "echo lisbon > city.txt"),
        (0.5, "cp note.txt city.txt"),
        (0.5, "echo 'The city is Lisbon' > city.txt"),
        (0.5, "printf 'Lisbon\\n\\n' > city.txt"),
        (1.0, "cat note.txt; printf Lisbon > city.txt"),
        (0, "cat note.txt"),
        (0, "ln -s note.txt city.txt"),
        (0, "echo Lisbon > /app/town.txt"),
    ],
}


def test_every_task_has_its_grades() -> None:
    assert sorted(GRADES) == NAMES


@pytest.mark.parametrize(("task", "reward", "command"), [(task, *row) for task, rows in GRADES.items() for row in rows])
def test_a_verifier_grades_what_the_command_left_behind(task: str, reward: float, command: str) -> None:
    played = play(TASKS / task, [command])
    assert played.reward == reward, played.said


@pytest.mark.parametrize("task", NAMES)
def test_nothing_done_is_worth_nothing(task: str) -> None:
    assert play(TASKS / task, []).reward == 0


@pytest.mark.parametrize("task", NAMES)
def test_the_solution_is_worth_all(task: str) -> None:
    assert play(TASKS / task, [(TASKS / task / "solution/solve.sh").read_text()]).reward == 1.0


@pytest.mark.parametrize("task", NAMES)
def test_a_planted_reward_file_is_overwritten(task: str) -> None:
    assert play(TASKS / task, ["mkdir -p /logs/verifier; echo 1.0 > /logs/verifier/reward.txt"]).reward == 0


@pytest.mark.parametrize("task", NAMES)
def test_programs_that_the_agent_left_in_its_way_do_not_fool_the_verifier(task: str) -> None:
    shims = "; ".join(
        f"printf '#!/bin/sh\\nexit 0\\n' > /usr/local/bin/{name}; chmod +x /usr/local/bin/{name}"
        for name in ("cmp", "grep", "readlink")
    )
    assert play(TASKS / task, [shims]).reward == 0
