"""Harbor's terminus-2 without what a session that keeps sampled tokens cannot take.

Stock terminus-2 appends a reply that was cut and asks again until its time is up, retries a failing endpoint dozens of
times, and rewrites its history when it grows long. Here every turn goes through the trial's model session instead of a
model library, a cut or full sequence ends the trial, and nothing is summarised.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, override

from harbor.agents.terminus_2.terminus_2 import Command, Terminus2
from harbor.agents.terminus_2.tmux_session import TmuxSession
from harbor.environments.base import BaseEnvironment
from harbor.llms.base import BaseLLM, ContextLengthExceededError, LLMResponse
from harbor.models.agent.context import AgentContext
from harbor.models.metric.usage_info import UsageInfo

from harborrl_agent_server.agents.terminus_parsers import JsonParser, XmlParser
from harborrl_agent_server.agents.tools import need
from harborrl_agent_server.contract import ExitStatus
from harborrl_agent_server.gateway_episode import episode
from harborrl_agent_server.gateway_session import EpisodeOver, ModelSession
from harborrl_agent_server.scope import CURRENT

TAKEN = frozenset(
    {
        "max_turns",
        "parser_name",
        "tmux_pane_width",
        "tmux_pane_height",
        "interleaved_thinking",
        "record_terminal_session",
        "store_all_messages",
    }
)
"""Harbor's options that `--agent-kwargs` may set. The others say how the model is asked, which the request does."""

GIVEN = frozenset({"logger", "mcp_servers", "skills_dir", "load_trajectory", "environment_logs_dir", "extra_env"})
"""What Harbor hands to every agent."""

UNBOUNDED = 1_000_000


class SessionLLM(BaseLLM):
    """Terminus' model: one turn of the trial's session, no retry of its own."""

    def __init__(self, session: ModelSession) -> None:
        self._session = session

    @override
    async def call(self, prompt: str, **kwargs: Any) -> LLMResponse:
        messages = [*(kwargs.get("message_history") or ()), {"role": "user", "content": prompt}]
        try:
            reply = await self._session.complete({"messages": messages})
        except EpisodeOver as over:
            raise ContextLengthExceededError(str(over)) from over
        thinking = reply.message.get("reasoning_content")
        usage = UsageInfo(
            prompt_tokens=reply.prompt_tokens or 0,
            completion_tokens=reply.completion_tokens or 0,
            cache_tokens=0,
            cost_usd=0.0,
        )
        return LLMResponse(
            content=reply.content, reasoning_content=thinking if isinstance(thinking, str) else None, usage=usage
        )

    @override
    def get_model_context_limit(self) -> int:
        return self._session.upstream.max_seq_len or UNBOUNDED

    @override
    def get_model_output_limit(self) -> int | None:
        return None


class StrictTerminus2(Terminus2):
    """terminus-2 for training; its options are Harbor's, those of `TAKEN`."""

    def __init__(self, logs_dir: Path, model_name: str | None = None, **kwargs: Any) -> None:
        foreign = kwargs.keys() - TAKEN - GIVEN
        self._scope = CURRENT.get()
        self._model_session = self._scope.session()
        kwargs.setdefault("record_terminal_session", False)
        super().__init__(
            logs_dir,
            model_name=model_name or f"openai/{self._model_session.upstream.model}",
            enable_summarize=False,
            proactive_summarization_threshold=0,
            suppress_max_turns_warning=True,
            **{name: value for name, value in kwargs.items() if name not in foreign},
        )

    @classmethod
    @override
    def preflight(cls, kwargs: dict[str, Any] | None = None, env: Mapping[str, str] | None = None) -> None:
        """Raises `ValueError` for options that say how the model is asked."""
        foreign = sorted((kwargs or {}).keys() - TAKEN)
        if foreign:
            raise ValueError(f"{', '.join(foreign)}: terminus-2 takes {', '.join(sorted(TAKEN))}")
        super().preflight(kwargs, env)

    @override
    def _init_llm(self, *args: Any, **kwargs: Any) -> BaseLLM:
        return SessionLLM(self._model_session)

    @override
    def _get_parser(self) -> JsonParser | XmlParser:
        return XmlParser() if self.options.parser_name == "xml" else JsonParser()

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        await need(environment, self.name(), "tmux", "bash")
        await super().setup(environment)

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        self._scope.progress.setdefault("tool_calls", 0)
        await episode(self._model_session, super().run(instruction, environment, context))
        if self._model_session.end is None:
            out_of_turns = self._n_episodes >= self._max_episodes and not self._pending_completion
            self._scope.progress["end"] = ExitStatus.TURN_LIMIT if out_of_turns else ExitStatus.SUBMITTED

    @override
    async def _execute_commands(self, commands: list[Command], session: TmuxSession) -> tuple[bool, str]:
        started = time.monotonic()
        progress = self._scope.progress
        progress["tool_calls"] += len(commands)
        try:
            return await super()._execute_commands(commands, session)
        finally:
            spent = time.monotonic() - started
            progress["env_execution_time_sum"] = progress.get("env_execution_time_sum", 0.0) + spent
