"""An image template is read by the agent server; that it can be read is judged before one is started."""

import pytest

from support import hrl
from support.hrl import condition, decide, message


@pytest.mark.parametrize("template", ["registry.example/{id}:1", "x/{task", "x/{}", "x/{task.name}", "x/{0}"])
def test_an_image_template_with_other_names_is_refused_before_the_server_meets_it(template: str) -> None:
    changes = {"agentServer.sandbox": {"images": {"template": template}}}
    decided = decide(hrl.job(changes), hrl.world())
    assert condition(decided, "Admitted") == ("False", "ImageUnresolved")
    assert "{task} and {hash}" in message(decided, "Admitted")
