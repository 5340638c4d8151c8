"""Replies of a policy that means harm: what parsing them costs is bounded, and usual ones are Harbor's to read."""

from collections.abc import Callable

import pytest
from harbor.agents.terminus_2.terminus_json_plain_parser import TerminusJSONPlainParser
from harbor.agents.terminus_2.terminus_xml_plain_parser import TerminusXMLPlainParser

from harborrl_agent_server.agents.terminus_parsers import LONGEST, MOST_STEPS, JsonParser, XmlParser, steps

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the model library that Harbor imports


def xml(*inside: str) -> str:
    return f"<response>{''.join(inside)}</response>"


def commands(*keys: str) -> str:
    return f"<commands>{''.join(keys)}</commands>"


def keys(text: str, words: str = ' duration="0.1"') -> str:
    return f"<keystrokes{words}>{text}</keystrokes>"


THOUGHTS = "<analysis>I see a < b && c > d.</analysis><plan>Look.</plan>"

USUAL_XML = [
    xml(THOUGHTS, commands(keys("ls -la\n"), keys("cat <<EOF >a.xml\n<a><b/></a>\nEOF\n"))),
    xml(THOUGHTS, commands(keys("ls"), keys("pwd", " duration=1 color='red'"))),
    xml(THOUGHTS, commands(keys("x" * 50_000 + "\n")), "<task_complete>true</task_complete>"),
    xml(THOUGHTS, commands(*[keys(f"echo {number}\n") for number in range(2000)])),
    xml(THOUGHTS, "<commands/>"),
    xml(THOUGHTS, "<commands><keystrokes duration='1'>ls"),
    xml("<plan>no analysis</plan>", "<other>x</other>", commands()),
    "words before " + xml(THOUGHTS, commands(keys("ls\n"))) + " and " + xml(THOUGHTS),
    f"<response>{THOUGHTS}{commands(keys('ls'))}",
    "no tag at all",
    "",
]

USUAL_JSON = [
    '{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "ls\\n", "duration": 0.1}], "task_complete": false}',
    'Well: {"plan": "p", "analysis": "a", "commands": []} so much',
    '{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "ls"}',
    '{"analysis": 3, "plan": [], "commands": [{"keystrokes": 1}]}',
    "[]",
    "no brace",
    "",
]


@pytest.mark.parametrize("reply", USUAL_XML, ids=lambda reply: reply[-40:])
def test_a_usual_reply_in_xml_is_read_as_harbor_reads_it(reply: str) -> None:
    assert XmlParser().parse_response(reply) == TerminusXMLPlainParser().parse_response(reply)  # type: ignore[no-untyped-call] # Harbor's


@pytest.mark.parametrize("reply", USUAL_JSON)
def test_a_usual_reply_in_json_is_read_as_harbor_reads_it(reply: str) -> None:
    assert JsonParser().parse_response(reply) == TerminusJSONPlainParser().parse_response(reply)  # type: ignore[no-untyped-call] # Harbor's


HOSTILE: dict[str, Callable[[int], str]] = {
    "a section opened again and again": lambda n: xml("<analysis>" * (n // 10)),
    "the end before the beginnings": lambda n: xml("</plan>", "<plan>" * (n // 6)),
    "an end behind the response": lambda n: xml("<commands>" * (n // 10)) + "</commands>",
    "an end that never comes": lambda n: xml("<task_complete> " * (n // 16)),
    "keystrokes without an end": lambda n: xml(commands("<keystrokes>" * (n // 12))),
    "keystrokes without a bracket": lambda n: xml(commands("<keystrokes" * (n // 11) + "</keystrokes>")),
    "keystrokes that end elsewhere": lambda n: xml(keys(""), commands("<keystrokes>" * (n // 12)), keys("")),
    "one word in a tag": lambda n: xml(commands(keys("x", f" {'a' * n}"))),
    "words in many tags": lambda n: xml(commands(*[keys("x", "a" * 1000)] * (n // 1000))),
}


@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_reply_on_which_harbor_would_work_for_ever_is_a_parse_error(reply: Callable[[int], str]) -> None:
    refused = XmlParser().parse_response(reply(400_000))
    assert (refused.commands, refused.is_task_complete) == ([], False)
    assert "close each tag" in refused.error


@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE.keys())
def test_whatever_is_read_costs_no_more_than_the_bound(reply: Callable[[int], str]) -> None:
    """The largest that is taken: by halving, as long as it is refused."""
    size = 400_000
    while XmlParser().parse_response(reply(size)).error.endswith("close each tag"):
        size //= 2
    content = XmlParser()._extract_response_content(reply(size))
    assert steps(content) <= MOST_STEPS < steps(XmlParser()._extract_response_content(reply(2 * size)))


@pytest.mark.parametrize("reply", USUAL_XML, ids=lambda reply: reply[-40:])
def test_a_usual_reply_is_far_below_the_bound(reply: str) -> None:
    assert steps(XmlParser()._extract_response_content(reply)) <= 1_000_000


@pytest.mark.parametrize("parser", [JsonParser(), XmlParser()])
@pytest.mark.parametrize("megabytes", [1, 10])
def test_what_is_too_long_is_not_read_at_all(parser: JsonParser | XmlParser, megabytes: int) -> None:
    refused = parser.parse_response("{" * megabytes * 2**20)
    assert f"at most {LONGEST} are read" in refused.error


@pytest.mark.parametrize(
    "value", ['{"a":' * 50_000 + "1" + "}" * 50_000, "[" * 100_000 + "]" * 100_000, "9" * 100_000], ids=lambda v: v[:5]
)
def test_json_that_python_does_not_read_is_a_parse_error_and_no_end_of_the_trial(value: str) -> None:
    reply = f'{{"analysis": "a", "plan": "p", "commands": [{{"keystrokes": "ls", "duration": {value}}}]}}'
    assert JsonParser().parse_response(reply).error.startswith("Invalid JSON")
