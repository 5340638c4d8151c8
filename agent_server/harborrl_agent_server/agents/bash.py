"""The bash agent: a loop on this side of the sandbox that needs nothing in the image but /bin/sh.

The model's messages go back exactly as they came, so that the session server can keep the tokens it sampled.
"""

import json
import time
from pathlib import Path
from typing import Any, ClassVar, override

from harbor.agents.base import BaseAgent
from harbor.agents.options import AgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from pydantic import Field

from harborrl_agent_server.agents.protocol import EXAMPLES, SYSTEM_PROMPT, observation, opening, parse_reply
from harborrl_agent_server.contract import ExitStatus
from harborrl_agent_server.gateway_episode import episode
from harborrl_agent_server.gateway_session import EpisodeOver, ModelSession
from harborrl_agent_server.scope import CURRENT
from harborrl_agent_server.threads import in_thread

TRAJECTORY = "trajectory.json"


class BashOptions(AgentOptions):
    """`--agent-kwargs`."""

    systemPrompt: str = SYSTEM_PROMPT  # noqa: N815 - the job document's spelling
    """Empty: no system message."""
    examples: list[dict[str, Any]] = Field(default_factory=lambda: [dict(message) for message in EXAMPLES])
    """Chat messages between the system prompt and the instruction; they cost tokens in every trial."""
    maxTurns: int = Field(default=8, ge=1)  # noqa: N815 - same
    """Model requests of one trial at most."""
    commandTimeoutSeconds: float = Field(default=60, gt=0)  # noqa: N815 - same
    """Of one command; it is then killed and the model sees exit code 124."""
    observationCharacters: int = Field(default=2000, ge=100)  # noqa: N815 - same
    """Longest output that the model is shown; the middle is cut out."""


class BashAgent(BaseAgent):
    """One command a turn until the model stops asking for one, or a limit is reached."""

    options_model: ClassVar[type[AgentOptions] | None] = BashOptions

    @staticmethod
    @override
    def name() -> str:
        return "bash"

    @override
    def version(self) -> str:
        return "1"

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing to install."""

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        if not isinstance(self.options, BashOptions):
            raise TypeError("the bash agent was built without its options")
        conversation = Conversation(self.options, environment, instruction)
        session = conversation.session
        try:
            await episode(session, conversation.play())
        finally:
            context.n_input_tokens = session.prompt_tokens
            context.n_output_tokens = session.completion_tokens
            context.metadata = dict(conversation.progress)
            await in_thread(write_trajectory, self.logs_dir / TRAJECTORY, conversation)


class Conversation:
    """State of one run of the loop. Progress is kept in the trial's scope, where it survives a cancelled agent."""

    def __init__(self, options: BashOptions, environment: BaseEnvironment, instruction: str) -> None:
        self.options = options
        self.environment = environment
        scope = CURRENT.get()
        self.session: ModelSession = scope.session()
        self.progress = scope.progress
        self.progress.update(tool_calls=0)
        self.messages = opening(options.systemPrompt, options.examples, instruction)

    async def play(self) -> None:
        try:
            self.progress["end"] = await self._turns()
        except EpisodeOver as over:
            if over.cut is not None:
                self.messages.append(over.cut.message)

    async def _turns(self) -> ExitStatus:
        for _ in range(self.options.maxTurns):
            reply = await self.session.complete({"messages": self.messages})
            self.messages.append(reply.message)
            action = parse_reply(reply.content)
            if action.command is not None:
                await self._act(action.command)
            if action.last:
                return ExitStatus.SUBMITTED
            if self.session.end is not None:
                return self.session.end
        return ExitStatus.TURN_LIMIT

    async def _act(self, command: str) -> None:
        started = time.monotonic()
        self._add("tool_calls", 1)
        try:
            result = await self.environment.exec(command, timeout_sec=self.options.commandTimeoutSeconds)  # type: ignore[arg-type] # our sandboxes take fractions
        finally:
            self._add("env_execution_time_sum", time.monotonic() - started)
        text = observation(
            result.return_code, result.stdout or "", result.stderr or "", limit=self.options.observationCharacters
        )
        self.messages.append({"role": "user", "content": text})

    def _add(self, key: str, amount: float) -> None:
        self.progress[key] = self.progress.get(key, 0) + amount


def write_trajectory(path: Path, conversation: Conversation) -> None:
    """The whole conversation as it went over the wire, for people; the tokens are the session server's to keep."""
    document = {
        "schema": "harborrl-bash/1",
        "model": conversation.session.upstream.model,
        "end": conversation.progress.get("end"),
        "progress": conversation.progress,
        "messages": conversation.messages,
    }
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1))
