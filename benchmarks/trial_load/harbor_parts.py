"""What Harbor's own job is given: sandboxes of our class, and a scripted agent as simple as ours."""

from typing import Any, ClassVar, override

import httpx
from harbor.agents.base import BaseAgent
from harbor.agents.options import AgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

from harborrl_agent_server.agents.protocol import EXAMPLES, SYSTEM_PROMPT, observation, opening, parse_reply
from harborrl_agent_server.sandboxes.local import LocalProvider, LocalSandbox
from harborrl_agent_server.scope import CURRENT, TrialScope

CLIENT = httpx.AsyncClient(timeout=None, trust_env=False, limits=httpx.Limits(max_connections=None))  # noqa: S113 - ours


PROVIDER = LocalProvider()


class JobSandbox(LocalSandbox):
    """Harbor's job tells a sandbox nothing of our own, so it brings the scope of its trial along.

    Nobody tells it that the agent is done: each call of Harbor's is a command, as in any sandbox.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        CURRENT.set(TrialScope(run_id="job", provider=PROVIDER))
        super().__init__(*args, **kwargs)


class Options(AgentOptions):
    session_url: str


class ScriptedAgent(BaseAgent):
    """Asks, runs the command of the reply, says what it printed: the loop of our bash agent and nothing else."""

    options_model: ClassVar[type[AgentOptions] | None] = Options

    @staticmethod
    @override
    def name() -> str:
        return "scripted"

    @override
    def version(self) -> str:
        return "1"

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing to install."""

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        if not isinstance(self.options, Options):
            raise TypeError("built without its options")
        url = f"{self.options.session_url}/sessions/{self.logs_dir.parent.name}/v1/chat/completions"
        messages = opening(SYSTEM_PROMPT, EXAMPLES, instruction)
        is_last = False
        while not is_last:
            answer = await CLIENT.post(url, json={"model": "model", "messages": messages})
            message = answer.json()["choices"][0]["message"]
            messages.append(message)
            action = parse_reply(message["content"])
            is_last = action.last
            if action.command is not None:
                done = await environment.exec(action.command, timeout_sec=60)
                said = observation(done.return_code, done.stdout or "", done.stderr or "", limit=2000)
                messages.append({"role": "user", "content": said})
