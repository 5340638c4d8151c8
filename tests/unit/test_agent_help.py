"""`--help` is all that somebody has who has the program alone."""

import re

import pytest

from harborrl_agent_server.flags import parser
from harborrl_agent_server.settings import AGENTS, SANDBOX_KINDS, Budgets


@pytest.fixture
def help_page(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "200")
    return parser(AGENTS, SANDBOX_KINDS, vars(Budgets())).format_help()


def test_every_flag_is_explained(help_page: str) -> None:
    flags = [line for line in help_page.splitlines() if line.startswith("  --")]
    assert len(flags) > 25
    assert [line for line in flags if not re.fullmatch(r"  --[a-z-]+( [A-Z=]+)? {2,}\S.*", line)] == []


def test_defaults_are_told(help_page: str) -> None:
    assert "--host HOST                     address to listen on; 0.0.0.0: all (default 127.0.0.1)" in help_page
    assert "(default 5400)" in help_page


@pytest.mark.parametrize("name", ["HARBOR_TASKS_DIR", "HARBOR_ADMIN_SECRET", "POD_IP", "images check|build"])
def test_what_is_no_flag_is_named_too(help_page: str, name: str) -> None:
    assert name in help_page
