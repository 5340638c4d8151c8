"""Harbor's parsers of terminus-2, for replies whose parsing has an end: the policy writes them, and the loop waits.

What they say is Harbor's own. Only a reply that no agent would send is a parse error of its own, told to the policy as
every other: one that is too long, and one on which Harbor's expressions would go back over the same text again and
again (40,000 letters in one tag took them 26 s).
"""

from typing import override

from harbor.agents.terminus_2 import terminus_json_plain_parser, terminus_xml_plain_parser

LONGEST = 512 * 1024
"""Characters: 128,000 tokens. What is linear, as the JSON format is, takes half a second for them at the worst."""

MOST_STEPS = 20_000_000
"""Characters that the XML format's expressions look at, some tenths of a second; a usual reply has as many as it is
long."""

SECTIONS = ("analysis", "plan", "commands", "task_complete")

KEYS, KEYS_END = "<keystrokes", "</keystrokes>"


class JsonParser(terminus_json_plain_parser.TerminusJSONPlainParser):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Harbor's

    @override
    def parse_response(self, response: str) -> terminus_json_plain_parser.ParseResult:
        fault = too_long(response)
        if fault is None:
            try:
                return super().parse_response(response)
            except (RecursionError, ValueError):
                fault = "Invalid JSON: nested too deeply, or a number of too many digits"
        return terminus_json_plain_parser.ParseResult([], False, fault, "")


class XmlParser(terminus_xml_plain_parser.TerminusXMLPlainParser):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Harbor's

    @override
    def parse_response(self, response: str) -> terminus_xml_plain_parser.ParseResult:
        fault = too_long(response) or unending(self._extract_response_content(response))
        if fault is not None:
            return terminus_xml_plain_parser.ParseResult([], False, fault, "")
        return super().parse_response(response)


def too_long(response: str) -> str | None:
    if len(response) <= LONGEST:
        return None
    return f"The response has {len(response)} characters, and at most {LONGEST} are read; answer more briefly"


def unending(content: str) -> str | None:
    if steps(content) <= MOST_STEPS:
        return None
    return "Too many tags without an end, or a tag of too many characters; close each tag"


def steps(content: str) -> int:
    """What a search for each section and for the commands costs beyond one look at the text. Itself one look."""
    unclosed = sum(after_unclosed(content, f"<{name}>", f"</{name}>") for name in SECTIONS)
    _, opened, rest = content.partition("<commands>")
    commands, closed, _ = rest.partition("</commands>")
    return unclosed + (of_commands(commands) if opened and closed else 0)


def after_unclosed(text: str, opening: str, closing: str) -> int:
    """Each opening is searched to the end, where the first one finds nothing that closes it."""
    first = text.find(opening)
    if first < 0 or text.find(closing, first) >= 0:
        return 0
    return text.count(opening) * (len(text) - first)


def of_commands(text: str) -> int:
    """As the expression goes through them: from an opening to the first end behind its `>`, and on from there.

    The words in a tag are looked at from each of their letters.
    """
    total, place = 0, text.find(KEYS)
    while place >= 0:
        words = place + len(KEYS)
        inside = text.find(">", words)
        end = text.find(KEYS_END, inside) if inside >= 0 else -1
        if end < 0:
            return total + text.count(KEYS, place) * (len(text) - place)
        total += (inside - words) ** 2
        place = text.find(KEYS, end + len(KEYS_END))
    return total
