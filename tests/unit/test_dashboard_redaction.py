"""Secrets are blanked out wherever they turn up, and a task's own solution in what its verifier prints."""

import pytest

from harborrl_agent_server.dashboard.redaction import (
    HIDDEN,
    KNOWN_AT_MOST,
    SOLUTION_LINE,
    Redactor,
    secrets_of,
    solution_lines,
    without_solution,
)
from support.alarm import rings_after


def test_a_known_secret_is_hidden_wherever_it_stands() -> None:
    redact = Redactor(["correct-horse"])
    redact.learn("battery-staple")
    assert redact("a correct-horse, a battery-staple") == f"a {HIDDEN}, a {HIDDEN}"


def test_a_secret_within_a_longer_one_does_not_leave_the_rest() -> None:
    assert Redactor(["abcdefgh", "abcdefgh-ijkl"])("x abcdefgh-ijkl x") == f"x {HIDDEN} x"


def test_short_words_are_no_secrets() -> None:
    assert Redactor(["", "dummy"])("a dummy text") == "a dummy text"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abc.DEF-123_456", "abc.DEF-123_456"),
        ("POST http://10.0.0.7:30000/m/0f3d9c1b2a4e4f0d8c7b6a5948372615/v1", "0f3d9c1b2a4e4f0d8c7b6a5948372615"),
        ("git clone https://user:hunter2@example.com/x", "hunter2"),
        ("key sk-proj-abcdefghijklmnop", "sk-proj-abcdefghijklmnop"),
        ("hf_abcdefghijklmnopqrst", "hf_abcdefghijklmnopqrst"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("OPENAI_API_KEY=abcdef123456", "abcdef123456"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "eyJzdWIiOiIxIn0"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----\nrest", "MIIEow"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEow (the file was cut here)", "MIIEow"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, secret: str) -> None:
    hidden = Redactor()(text)
    assert secret not in hidden
    assert HIDDEN in hidden


@pytest.mark.parametrize(
    "text",
    ["tokens: 12345", "http://example.com:8080/path@x", "key=value pairs", "sk-learn", "pass", "a bearer bond"],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor()(text) == text


def test_only_variables_that_are_named_like_secrets_are_secrets() -> None:
    environ = {"HARBOR_ADMIN_SECRET": "s1", "WANDB_API_KEY": "s2", "DB_PASSWORD": "s3", "HOME": "/root"}
    assert secrets_of(environ) == ["s1", "s2", "s3"]


def test_the_memory_for_secrets_is_bounded() -> None:
    redact = Redactor()
    for number in range(KNOWN_AT_MOST + 5):
        redact.learn(f"secret-{number:06d}")
    assert redact("secret-000000") == "secret-000000"
    assert redact(f"secret-{KNOWN_AT_MOST:06d}") == HIDDEN


def test_a_line_of_the_solution_is_hidden_with_and_without_the_marks_of_a_diff() -> None:
    solution = solution_lines(["#!/bin/sh\nset -e\necho hello world >/app/greeting.txt\n"])
    shown = without_solution("got:\n+ echo hello world >/app/greeting.txt\nset -e\n1 failed", solution)
    assert shown == f"got:\n{SOLUTION_LINE}\nset -e\n1 failed"


def test_without_a_solution_nothing_is_hidden() -> None:
    assert without_solution("echo hello world >/app/greeting.txt", frozenset()) == "echo hello world >/app/greeting.txt"


@pytest.mark.parametrize(
    "unit", ["eyJ-", "eyJa.", "://a:", "a:", "-----BEGIN ", "KEY=abcdef", "Bearer ", "/m/a", "sk-"]
)
def test_no_text_of_a_policys_holds_the_server_up(unit: str) -> None:
    with rings_after():
        Redactor()("://" + unit * (1_000_000 // len(unit)))


def test_no_line_of_a_verifiers_holds_the_server_up() -> None:
    line = "a" + " " * 1_000_000 + "b"
    with rings_after():
        assert without_solution(line, frozenset({"something of the solution"})) == line
