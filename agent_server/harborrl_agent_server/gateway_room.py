"""Whether a turn was refused because its sequence is full, in the words of the engines behind session servers.

Our own session server says it by a code, as OpenAI does. Miles' hands on what its engine answered, and engines only use
words (SGLang: `srt/managers/tokenizer_manager.py` and `srt/managers/utils.py`; vLLM: its input processor). Nothing else
of an answer is read: a refused history is quoted in some, and a policy writes it.
"""

import re
from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json

CONTEXT_EXCEEDED = "context_length_exceeded"

REFUSING = frozenset({400, 413, 422})

WORDS = re.compile(
    r"(?:Value ?[Ee]rror[:,] )?"
    r"(?:'max_tokens' or 'max_completion_tokens' is too large: \d+\. )?"  # vLLM, of prompt and completion together
    r"(?:The input \(\d+ tokens\) is longer than the model's context length"
    r"|Requested token count exceeds the model's maximum context length"
    r"|Input length \(\d+ tokens\) exceeds the maximum allowed length"
    r"|This model's maximum context length is \d+ tokens"
    r"|The decoder prompt \(length \d+\) is longer than the maximum model length)"
)


def is_full(status: int, body: bytes) -> bool:
    if status not in REFUSING:
        return False
    try:
        document = from_json(body)
    except ValueError:
        return False
    return any(says_so(place) for place in places(document))


def places(document: Any) -> Iterator[Any]:
    """Where an error may be: the document itself, or what it has under a name of its own."""
    yield document
    if isinstance(document, dict):
        yield from (document[key] for key in ("error", "detail") if key in document)


def says_so(error: Any) -> bool:
    if isinstance(error, str):
        return bool(WORDS.match(error))
    if not isinstance(error, dict):
        return False
    named = CONTEXT_EXCEEDED in (error.get("code"), error.get("type"))
    return named or bool(WORDS.match(str(error.get("message"))))
