"""What no page may show: secrets wherever they turn up, and a task's own solution in what its verifier printed."""

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping

HIDDEN = "[hidden]"
SOLUTION_LINE = "[a line of the task's own solution]"

SHORTEST_SECRET = 8
"""Characters. A shorter value would blank out common words; it is no secret either."""

SHORTEST_SOLUTION_LINE = 16
"""Characters. Shorter lines (`fi`, `return x`) stand in every program."""

KNOWN_AT_MOST = 1000
"""API keys that are remembered: clients bring a handful, a misbehaving one cannot fill the memory."""

SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSW|CREDENTIAL)", re.IGNORECASE)

PATTERNS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"(?<=/m/)[A-Za-z0-9_-]{16,}"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    re.compile(r"\b(?:sk-|hf_|gh[opsur]_|github_pat_|glpat-|xox[abps]-|AKIA)[A-Za-z0-9_-]{12,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{10,1000}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"),
    re.compile(r"(?<=KEY=)[^\s'\"]{6,}|(?<=TOKEN=)[^\s'\"]{6,}|(?<=SECRET=)[^\s'\"]{6,}|(?<=PASSWORD=)[^\s'\"]{6,}"),
)
"""Shapes of secrets that we were never told: private keys, bearers, gateway tokens, credentials in URLs, well-known
prefixes, signed tokens, and what `env` prints. A policy may have written what they search, and while one of them runs
so does nothing else of this process: none may look at one place more than so often."""

DIFF_MARK = re.compile(r"^[\s+<>|-]++|(?<!\s)\s++$")


class Redactor:
    """Blanks out known secrets and what looks like one."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: OrderedDict[str, None] = OrderedDict()
        for secret in known:
            self.learn(secret)

    def learn(self, secret: str) -> None:
        """From now on this value is hidden, too."""
        if len(secret) < SHORTEST_SECRET:
            return
        self._known[secret] = None
        self._known.move_to_end(secret)
        if len(self._known) > KNOWN_AT_MOST:
            self._known.popitem(last=False)

    def __call__(self, text: str) -> str:
        for secret in sorted(self._known, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        for pattern in PATTERNS:
            text = pattern.sub(HIDDEN, text)
        return text


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """Values of environment variables that are named like secrets."""
    return [value for name, value in environ.items() if SECRET_NAME.search(name)]


def solution_lines(texts: Iterable[str]) -> frozenset[str]:
    """Lines by which a solution can be recognised, without comments."""
    lines = (DIFF_MARK.sub("", line) for text in texts for line in text.splitlines())
    return frozenset(line for line in lines if len(line) >= SHORTEST_SOLUTION_LINE and not line.startswith("#"))


def without_solution(text: str, solution: frozenset[str]) -> str:
    """Verifiers print diffs against the solution, or trace (`set -x`) what they run of it."""
    if not solution:
        return text
    return "\n".join(SOLUTION_LINE if DIFF_MARK.sub("", line) in solution else line for line in text.split("\n"))
