"""mini-swe-agent as it is found in the sandbox: from the task's image or the tools bundle, never installed in a trial.

It runs beside the task's files and asks the model through the gateway. Its command line names files only: the task,
the address and the token would else be read in process lists and audit logs.
"""

import json
import logging
import re
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, override

from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.options import AgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from pydantic import Field

from harborrl_agent_server.agents.atif import trajectory
from harborrl_agent_server.agents.mini_swe_output import KEPT_BYTES, document_of, end_as_it_says, info_of, tidied
from harborrl_agent_server.agents.tools import need
from harborrl_agent_server.bounded import finish
from harborrl_agent_server.errors import SANDBOX_FAULTS
from harborrl_agent_server.gateway_episode import episode
from harborrl_agent_server.sandboxes.streams import TransferTooLargeError
from harborrl_agent_server.scope import CURRENT, TrialScope
from harborrl_agent_server.threads import in_thread

LOG = logging.getLogger(__name__)

PROGRAM = "mini-swe-agent"

FOLDER = "/tmp/.harborrl-mini"  # noqa: S108 - inside the sandbox
"""Its files; outside what Harbor downloads, so that what is kept can be read first."""

KEEP_SECONDS = 30.0
"""For its trajectory and output to come out of the sandbox, when it was cut off too."""

QUIET = {
    "MSWEA_CONFIGURED": "true",
    "MSWEA_COST_TRACKING": "ignore_errors",
    "MSWEA_SILENT_STARTUP": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",
}
"""No question, no price list, no retry: the session has tried already what can be tried again."""


class MiniSweAgentError(Exception):
    """mini-swe-agent ended with an error of its own."""


class MiniSweOptions(AgentOptions):
    """`--agent-kwargs`."""

    config: str = Field(default="mini", pattern=r"[A-Za-z0-9_.-]+")
    """Its packaged configuration: `mini` calls a tool, `mini_textbased` writes commands as text."""
    modelClass: str = Field(default="litellm", pattern=r"[A-Za-z0-9_.]+")  # noqa: N815 - the job document's spelling
    """`litellm_textbased` goes with `mini_textbased`."""
    stepLimit: int = Field(default=0, ge=0)  # noqa: N815 - same
    """Turns at most; 0: no limit of its own."""


class PreinstalledMiniSweAgent(BaseAgent):
    """Starts the program, waits for it, and keeps its trajectory."""

    capabilities = AgentCapabilities(atif=True)
    options_model: ClassVar[type[AgentOptions] | None] = MiniSweOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._version: str | None = None
        self._document: dict[str, Any] = {}
        """Its own trajectory, once it has come out of the sandbox."""

    @staticmethod
    @override
    def name() -> str:
        return PROGRAM

    @override
    def version(self) -> str | None:
        return self._version

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        await need(environment, PROGRAM, PROGRAM)

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        scope = CURRENT.get()
        session = scope.session()
        if scope.gateway is None or not isinstance(self.options, MiniSweOptions):
            raise TypeError("mini-swe-agent was built without its options or a gateway")
        with scope.gateway.admitted(session) as url:
            secret = url.split("/")[-2]
            try:
                await episode(session, self._play(environment, instruction, session.upstream.model, url))
            finally:
                context.n_input_tokens = session.prompt_tokens
                context.n_output_tokens = session.completion_tokens
                await finish(self._keep(environment, scope, secret), KEEP_SECONDS)
        end_as_it_says(self._document, scope.progress)

    async def _play(self, environment: BaseEnvironment, instruction: str, model: str, url: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            (place / "run.yaml").write_text(json.dumps(configuration(self.options, instruction, model)))
            (place / "model.env").write_text(environment_file(url))
            (place / "model.env").chmod(0o600)
            await environment.upload_dir(place, FOLDER)
        if environment.default_user is not None:
            owner = shlex.quote(str(environment.default_user))
            await environment.exec(f"chown -R {owner} {FOLDER}", timeout_sec=KEEP_SECONDS, user="root")  # type: ignore[arg-type] # our sandboxes take fractions
        config = shlex.quote(self.options.config)  # type: ignore[union-attr] # checked in run
        command = (
            f"set -a; . {FOLDER}/model.env; set +a; rm -f {FOLDER}/model.env; "
            f"exec {PROGRAM} -c {config} -c {FOLDER}/run.yaml -o {FOLDER}/trajectory.json "
            f"</dev/null >{FOLDER}/output.txt 2>&1"
        )
        result = await environment.exec(command)
        if result.return_code:
            raise MiniSweAgentError(f"exit code {result.return_code}; see agent/{PROGRAM}.txt of the trial")

    async def _keep(self, environment: BaseEnvironment, scope: TrialScope, secret: str) -> None:
        """What it wrote, without the token: a policy that prints its environment must not have it kept."""
        own = self.logs_dir / f"{PROGRAM}.trajectory.json"
        for source, target in (("output.txt", self.logs_dir / f"{PROGRAM}.txt"), ("trajectory.json", own)):
            try:
                await environment.download_file(f"{FOLDER}/{source}", target)
            except SANDBOX_FAULTS:
                return  # noted already
            except (RuntimeError, TransferTooLargeError) as error:
                scope.warnings.append(f"{PROGRAM} left no {source}: {str(error)[:200]}")
                continue
            if not await in_thread(tidied, target, secret):
                scope.warnings.append(f"{PROGRAM} left more {source} than the {KEPT_BYTES >> 20} MiB that are kept")
        self._document = await in_thread(document_of, own)
        if own.exists() and not self._document:
            scope.warnings.append(f"{PROGRAM} left a trajectory.json that cannot be read")
        self._version = str(info_of(self._document).get("mini_version") or "") or None
        try:
            await in_thread(self._write_trajectory, scope)
        except Exception as error:  # noqa: BLE001 - what is in it the policy may have written
            scope.warnings.append(f"{PROGRAM}'s trajectory is none: {type(error).__name__}: {str(error)[:200]}")

    def _write_trajectory(self, scope: TrialScope) -> None:
        if not self._document:
            return
        told = trajectory(
            self._document.get("messages") or [],
            agent=PROGRAM,
            version=self._version or "unknown",
            session_id=self.session_id or scope.run_id,
        )
        (self.logs_dir / "trajectory.json").write_text(told.model_dump_json(exclude_none=True, indent=1))


def configuration(options: Any, instruction: str, model: str) -> dict[str, Any]:
    """What is laid over the packaged configuration; JSON is YAML."""
    return {
        "run": {"task": instruction},
        "agent": {
            "mode": "yolo",
            "confirm_exit": False,
            "cost_limit": 0,
            "step_limit": options.stepLimit,
        },
        "model": {
            "model_class": options.modelClass,
            "model_name": f"openai/{model}",
            "model_kwargs": {"timeout": 86400, "max_retries": 0, "drop_params": True},
        },
    }


def environment_file(url: str) -> str:
    variables: Mapping[str, str] = {
        **QUIET,
        "OPENAI_BASE_URL": url,
        "OPENAI_API_BASE": url,
        "OPENAI_API_KEY": "none",
        "NO_PROXY": re.sub(r"^https?://\[?([^/\]]+?)\]?(:\d+)?/.*$", r"\1", url),
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())
