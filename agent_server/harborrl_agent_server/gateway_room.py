"""Whether a turn was refused because its sequence is full, in the words of the engines behind session servers.

Our own session server says it by a code, as OpenAI does. Miles' hands on what its engine answered, and engines only use
words (SGLang: `srt/managers/tokenizer_manager.py` and `srt/managers/utils.py`; vLLM: its input processor). Nothing else
of an answer is read: a refused history is quoted in some, and a policy writes it.
"""

import re
from typing import Any

from pydantic_core import from_json

CONTEXT_EXCEEDED = "context_length_exceeded"

REFUSING = frozenset({400, 413, 422})

WORDS = re.compile(
    r"(?:[\w ]{1,40}[:,] )?"
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
    if not isinstance(document, dict):
        return False
    error: Any = document.get("error", document)
    if not isinstance(error, dict):
        return False
    return error.get("code") == CONTEXT_EXCEEDED or bool(WORDS.match(str(error.get("message"))))
