"""What the bash agent reads in a reply, and what it shows the model."""

import pytest

from harborrl_agent_server.agents.protocol import DONE_MARKER, EXAMPLES, observation, opening, parse_reply
from support.alarm import rings_after


@pytest.mark.parametrize(
    ("reply", "command", "last"),
    [
        pytest.param("```sh\nls\n```", "ls", False, id="a sh block is a command"),
        pytest.param(
            "I will look.\n```bash\nls -l\npwd\n```\nDone soon.",
            "ls -l\npwd",
            False,
            id="text around a block does not matter",
        ),
        pytest.param("```\nls\n```", "ls", False, id="a bare block is a command"),
        pytest.param(
            "```\nfirst\n```\n```sh\nsecond\n```", "second", False, id="a labelled block comes before a bare one"
        ),
        pytest.param("```sh\none\n```\n```sh\ntwo\n```", "one", False, id="one command a turn"),
        pytest.param("```python\nprint()\n```", None, True, id="another language is no command"),
        pytest.param("```sh\necho a", "echo a", False, id="an open block ends with the reply"),
        pytest.param("```sh\n\n```", None, True, id="an empty block is no command"),
        pytest.param(
            f"```sh\n```\n{DONE_MARKER}", None, True, id="a block without even an empty line ends at its own fence"
        ),
        pytest.param("```sh\n```\n```sh\nls\n```", "ls", False, id="an empty block does not hide the next one"),
        pytest.param("I look.\r\n```sh\r\nls\r\npwd\r\n```\r\n", "ls\npwd", False, id="line ends of Windows count"),
        pytest.param("The task is finished.", None, True, id="no block ends the trial"),
        pytest.param("", None, True, id="an empty reply ends the trial"),
        pytest.param(DONE_MARKER, None, True, id="the marker ends the trial"),
        pytest.param(f"```sh\nls\n```\n{DONE_MARKER}", "ls", True, id="a command and the marker: run it, then end"),
        pytest.param(
            f"```sh\necho {DONE_MARKER}\n```", f"echo {DONE_MARKER}", False, id="the marker inside a command is text"
        ),
    ],
)
def test_a_reply_asks_for_one_command_or_ends_the_trial(reply: str, command: str | None, last: bool) -> None:
    action = parse_reply(reply)
    assert (action.command, action.last) == (command, last)


def test_the_worked_example_obeys_the_protocol() -> None:
    actions = [parse_reply(message["content"]) for message in EXAMPLES if message["role"] == "assistant"]
    assert [action.last for action in actions] == [False, True, False, True]


def test_an_observation_names_the_exit_code_and_both_outputs() -> None:
    assert observation(3, "out\n", "err\n", limit=100) == "exit code 3\nout\nerr"


def test_silence_is_said() -> None:
    assert observation(0, "", " \n", limit=100) == "exit code 0\n(no output)"


def test_a_long_output_keeps_its_beginning_and_its_end() -> None:
    text = observation(0, "a" * 500 + "z" * 500, "", limit=100)
    assert text.startswith("exit code 0\n" + "a" * 50)
    assert text.endswith("z" * 50)
    assert "900 characters omitted" in text


def test_the_instruction_stands_last_in_the_opening() -> None:
    messages = opening("", EXAMPLES, "  do it\n")
    assert messages[-1] == {"role": "user", "content": "do it"}
    assert messages[0] == EXAMPLES[0]


@pytest.mark.parametrize("unit", [" ", "\t", "a", "`", "``` ", "```\n", "\n ", "```sh\n \n"])
def test_no_reply_holds_the_server_up(unit: str) -> None:
    with rings_after():
        parse_reply("```" + unit * 400_000 + "x")
