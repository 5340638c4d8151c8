"""An agent of one's own: each reply is a shell command, its output the next message, until the model says DONE."""

from typing import ClassVar, override

import httpx
from harbor.agents.base import BaseAgent
from harbor.agents.options import AgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

SYSTEM = "Answer with one shell command and nothing else. When the task is done, answer DONE."


class Options(AgentOptions):
    """`agentServer.agentKwargs`."""

    max_turns: int = 8
    """Replies of the model."""


class Commander(BaseAgent):
    """Runs in the agent server; only its commands run in the sandbox."""

    options_model: ClassVar[type[AgentOptions] | None] = Options
    model_url: str
    """Set by the server while `run` lasts: an OpenAI base URL of this trial's model, which takes any key."""

    @staticmethod
    @override
    def name() -> str:
        return "commander"

    @override
    def version(self) -> str:
        return "1"

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        """Needs nothing in the sandbox but a shell."""

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """The server ends it, too: with the sequence's room, a cut reply, the trial's time."""
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": instruction}]
        options = self.options if isinstance(self.options, Options) else Options()
        async with httpx.AsyncClient(base_url=self.model_url, timeout=None) as model:  # noqa: S113 - --agent-timeout ends it
            for _ in range(options.max_turns):
                answer = await model.post("/chat/completions", json={"model": self.model_name, "messages": messages})
                answer.raise_for_status()
                reply = answer.json()["choices"][0]["message"]
                messages.append(reply)
                command = (reply["content"] or "").strip()
                if command == "DONE":
                    return
                done = await environment.exec(command, timeout_sec=60)
                output = f"exit code {done.return_code}\n{done.stdout or ''}{done.stderr or ''}"
                messages.append({"role": "user", "content": output[:2000]})
