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

from harborrl_agent_server.agents.model_client import ContextLengthExceeded, Reply, complete
from harborrl_agent_server.agents.protocol import EXAMPLES, SYSTEM_PROMPT, observation, opening, parse_reply
from harborrl_agent_server.contract import ExitStatus
from harborrl_agent_server.scope import CURRENT

TRAJECTORY = "trajectory.json"


class BashOptions(AgentOptions):
    """`--agent-kwargs`, and what the request adds."""

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
    session_url: str = ""
    model: str = "model"
    sampling_params: dict[str, Any] = Field(default_factory=dict)
    max_seq_len: int | None = None


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
        episode = Episode(self.options, environment, instruction)
        try:
            episode.end = await episode.play()
        finally:
            context.n_input_tokens = episode.prompt_tokens
            context.n_output_tokens = episode.completion_tokens
            context.metadata = dict(episode.scope.progress)
            write_trajectory(self.logs_dir / TRAJECTORY, episode)


class Episode:
    """State of one run of the loop. Progress is kept in the trial's scope, where it survives a cancelled agent."""

    def __init__(self, options: BashOptions, environment: BaseEnvironment, instruction: str) -> None:
        self.options = options
        self.environment = environment
        self.scope = CURRENT.get()
        self.progress = self.scope.progress
        self.progress.update(turns=0, tool_calls=0)
        self.messages = opening(options.systemPrompt, options.examples, instruction)
        self.end: ExitStatus | None = None
        self.prompt_tokens = 0
        self.completion_tokens = 0

    async def play(self) -> ExitStatus:
        end = await self._turns()
        self.progress["end"] = end
        return end

    async def _turns(self) -> ExitStatus:
        for _ in range(self.options.maxTurns):
            try:
                reply = await self._ask()
            except ContextLengthExceeded:
                return ExitStatus.SEQUENCE_LENGTH_LIMIT
            self.messages.append(reply.message)
            if reply.finish_reason == "length":
                # The session refuses to go on after a cut turn, and a half command must not run.
                return ExitStatus.SEQUENCE_LENGTH_LIMIT
            action = parse_reply(reply.content)
            if action.command is not None:
                await self._act(action.command)
            if action.last:
                return ExitStatus.SUBMITTED
            if self.options.max_seq_len and (reply.total_tokens or 0) >= self.options.max_seq_len:
                return ExitStatus.SEQUENCE_LENGTH_LIMIT
        return ExitStatus.TURN_LIMIT

    async def _ask(self) -> Reply:
        started = time.monotonic()
        body = {**self.options.sampling_params, "model": self.options.model, "messages": self.messages}
        try:
            reply = await complete(
                self.scope.model_client,
                f"{self.options.session_url}/chat/completions",
                body,
                api_key=self.scope.api_key,
            )
        finally:
            self._add("model_query_time_sum", time.monotonic() - started)
        self._add("turns", 1)
        self.prompt_tokens += reply.prompt_tokens or 0
        self.completion_tokens += reply.completion_tokens or 0
        return reply

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


def write_trajectory(path: Path, episode: Episode) -> None:
    """The whole conversation as it went over the wire, for people; the tokens are the session server's to keep."""
    document = {
        "schema": "harborrl-bash/1",
        "model": episode.options.model,
        "end": episode.end,
        "progress": episode.progress,
        "messages": episode.messages,
    }
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1))
