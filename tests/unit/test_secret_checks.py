"""Secrets are known by their form too, and each is told where it belongs."""

from typing import Any

import pytest

from support import hrl
from support.hrl import condition, message

TOKEN = "sk-ant-api03-" + "x" * 24
WRITTEN: list[tuple[str, Any, str]] = [
    (
        "agentServer.agentKwargs",
        {"headers": [{"api_key": "abc123"}]},
        "headers.api_key looks like a secret and would be readable in ConfigMaps and process lists. Remove it: agents",
    ),
    ("trainer.env", [{"name": "NOTE", "value": f"my {TOKEN}"}], "NOTE looks like a secret"),
    ("trainer.extraArgs", f"--wandb-group {TOKEN}", "YAML key wandb_group looks like a secret"),
    ("agentServer.agentKwargs", {"note": TOKEN}, "agentKwargs: note looks like a secret"),
    ("trainer.podOverrides", {"containers": [{"args": [TOKEN]}]}, "trainer.podOverrides: containers.args looks like"),
]


@pytest.mark.parametrize(("field", "value", "says"), WRITTEN)
def test_a_secret_is_refused_wherever_it_is_written(field: str, value: Any, says: str) -> None:
    decided = hrl.decide(hrl.job({field: value}), hrl.world())
    assert condition(decided, "Admitted") == ("False", "PlainSecret")
    assert says in message(decided, "Admitted")
    assert TOKEN not in message(decided, "Admitted")
