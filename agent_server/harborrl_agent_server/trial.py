"""One trial on Harbor: its configuration, its run, and what can be seen of it afterwards."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment
from harbor.models.task.config import ArtifactConfig, VerifierEnvironmentMode
from harbor.models.task.config import TaskConfig as TaskDefinition
from harbor.models.task.verifier_mode import resolve_task_verifier_mode
from harbor.models.trial.config import AgentConfig, TaskConfig, TrialConfig, VerifierConfig
from harbor.models.trial.paths import EnvironmentPaths
from harbor.models.trial.result import TimingInfo, TrialResult
from harbor.trial.hooks import TrialEvent, TrialHookEvent
from harbor.trial.trial import Trial

from harborrl_agent_server.agents.registry import loaded, model_session, tools_of
from harborrl_agent_server.building import built, taken_back
from harborrl_agent_server.contract import ExitStatus, RunRequest
from harborrl_agent_server.errors import ERROR_POLICY
from harborrl_agent_server.gateway import Gateway
from harborrl_agent_server.loggers import forget_loggers
from harborrl_agent_server.outcomes import Cause, Evidence
from harborrl_agent_server.phases import Phase
from harborrl_agent_server.scope import CURRENT, SandboxProvider, TrialScope
from harborrl_agent_server.sessions import RECORD, trial_name
from harborrl_agent_server.settings import Settings
from harborrl_agent_server.spending import Spending
from harborrl_agent_server.task_users import users_of
from harborrl_agent_server.volumes import read

LOG = logging.getLogger(__name__)

Entered = Callable[[Phase], None]
"""Told when the trial goes on to another phase."""


class TrialRun:
    """A prepared trial. `create` does Harbor's own checks; `run` is awaited once and may be cancelled once."""

    def __init__(self, trial: Trial, scope: TrialScope, entered: Entered) -> None:
        self.trial = trial
        self.scope = scope
        self.agent_started = False
        self.result: TrialResult | None = None
        self._entered = entered
        self._given_up = False
        scope.users = users_of(trial.task.config)

    @classmethod
    async def create(
        cls,
        request: RunRequest,
        *,
        task_dir: Path,
        agent: AgentConfig,
        settings: Settings,
        provider: SandboxProvider,
        gateway: Gateway,
        run_id: str,
        entered: Entered,
        ended: Coroutine[Any, Any, None],
    ) -> "TrialRun":
        """Build Harbor's trial in the current context.

        Raises `BadTaskError` for what Harbor refuses about the task, `TrialExistsError` when the session has a trial,
        and what `volumes.read` raises.
        """
        scope = TrialScope(
            run_id=run_id,
            provider=provider,
            gateway=gateway,
            tools=tools_of(request, settings),
            spending=Spending(settings.budgets),
        )
        scope.model = model_session(request, settings, gateway.new_client(), scope.progress, scope.warnings)
        CURRENT.set(scope)
        config = config_of(trial_name(request.instance_id, run_id), task_dir, agent, provider, settings)
        if agent.import_path is not None:
            await loaded(agent.import_path)
        trial = await read(
            partial(built, config),
            f"task {task_dir.name}",
            limit_s=settings.read_s,
            ended=ended,
            late=taken_back,
        )
        return cls(trial, scope, entered)

    @property
    def name(self) -> str:
        return self.trial.config.trial_name

    async def run(self) -> TrialResult:
        """Run to the end. Harbor's own result file and ours are written even when this is cancelled."""
        CURRENT.set(self.scope)
        self._tell_phases()
        try:
            self.result = await self.trial.run()
        except Exception as error:
            seen = self._seen()
            if seen is None or seen.verifier_result is None:
                raise
            LOG.warning("trial %s was graded, and its end failed: %s", self.name, error)
            self.scope.warnings.append(f"after grading: {type(error).__name__}: {error}")
            self.result = seen
        finally:
            if self.scope.model is not None:
                await self.scope.model.hang_up()
            forget_loggers(self.name)
        return self.result

    def give_up(self, running: asyncio.Task[Any]) -> None:
        """Cancel it, once. Harbor swallows that while it stops the agent's sandbox: then it ends before its next phase.

        Without, it would make the verifier's own sandbox and grade, for nobody, as long as both may take.
        """
        self._given_up = True
        running.cancel()

    def _go_on(self, phase: Phase) -> None:
        if self._given_up:
            raise asyncio.CancelledError(f"given up before {phase}")
        self._entered(phase)

    def _tell_phases(self) -> None:
        """Harbor has an event for some of them; the others begin with a call that it makes."""
        trial = self.trial
        trial.add_hook(TrialEvent.AGENT_START, self._before_agent)
        trial.add_hook(TrialEvent.AGENT_END, self._collecting)
        trial.add_hook(TrialEvent.VERIFICATION_START, self._before_grading)
        for part, method, phase in (
            (trial.agent, "setup", Phase.SETUP),
            (trial.agent_environment, "stop", Phase.STOPPING),
        ):
            setattr(part, method, self._telling(phase, getattr(part, method)))

    def _telling(self, phase: Phase, call: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def told(*args: Any, **kwargs: Any) -> None:
            self._entered(phase)
            await call(*args, **kwargs)

        return told

    async def _before_agent(self, _: TrialHookEvent) -> None:
        self._go_on(Phase.RUNNING)
        self.agent_started = True
        for sandbox in self.scope.sandboxes:
            sandbox.agent_begins()

    async def _collecting(self, _: TrialHookEvent) -> None:
        self._entered(Phase.COLLECTING)
        for sandbox in self.scope.sandboxes:
            sandbox.agent_ended(collected(self.trial.task.config))

    async def _before_grading(self, _: TrialHookEvent) -> None:
        """No process of the agent may outlive its phase: it could rewrite the reward file after the tests."""
        self._go_on(Phase.GRADING)
        for sandbox in self.scope.sandboxes:
            await sandbox.quiesce()

    async def destroy_sandboxes(self) -> None:
        """Remove the sandboxes behind Harbor's back, when Harbor does not come to it."""
        await asyncio.gather(*(sandbox.destroy() for sandbox in self.scope.sandboxes), return_exceptions=True)

    @property
    def sandbox_left(self) -> bool:
        return any(sandbox.left for sandbox in self.scope.sandboxes)

    def evidence(self, cause: Cause | None, *, agent_timeout_s: float) -> Evidence:
        fault = self.scope.fault
        seen = Evidence(
            cause=cause,
            fault=type(fault).__name__ if fault else None,
            fault_message=str(fault) if fault else "",
            agent_started=self.agent_started,
            agent_end=ExitStatus(self.scope.progress["end"]) if "end" in self.scope.progress else None,
        )
        result = self._seen()
        if result is None:
            return seen
        ended = result.exception_info
        if cause is not None and ended is not None and ended.exception_type == "CancelledError":
            ended = None  # the cause says why
        return replace(
            seen,
            exception=ended.exception_type if ended else None,
            message=ended.exception_message[:1000] if ended else "",
            agent_started=result.agent_execution is not None,
            agent_timed_out=(seconds(result.agent_execution) or 0) >= 0.98 * agent_timeout_s,
            never_asked=self.scope.never_asked(),
            verifier_started=result.verifier is not None,
            verifiers_own_missing=result.verifier is not None and self._verifier_has_no_sandbox(),
            after_grading=ended is not None and after(ended.occurred_at, result.verifier),
            rewards=result.verifier_result.rewards if result.verifier_result else None,
        )

    def _verifier_has_no_sandbox(self) -> bool:
        """It asks for one of its own, and none has started."""
        is_separate = resolve_task_verifier_mode(self.trial.task.config) is VerifierEnvironmentMode.SEPARATE
        return is_separate and not any(sandbox in self.scope.ready for sandbox in self.scope.sandboxes[1:])

    def _seen(self) -> TrialResult | None:
        """The result; of a trial that was cut off as much of it as there is, a reward perhaps."""
        return self.result or self.trial._result  # noqa: SLF001 - a cancelled trial hands it to nobody

    def phase_seconds(self) -> dict[str, float]:
        result = self._seen()
        if result is None:
            return {}
        phases = {
            "start": result.environment_setup,
            "setup": result.agent_setup,
            "run": result.agent_execution,
            "verify": result.verifier,
        }
        return {name: round(spent, 3) for name, timing in phases.items() if (spent := seconds(timing)) is not None}

    def metrics(self) -> dict[str, float]:
        """What the agent measured, and the phases under the names that trainers aggregate."""
        measured = {key: float(value) for key, value in self.scope.progress.items() if isinstance(value, int | float)}
        phases = self.phase_seconds()
        measured |= {
            key: phases[phase] for key, phase in (("agent_run_time", "run"), ("eval_time", "verify")) if phase in phases
        }
        return {key: round(value, 6) for key, value in measured.items()}

    def write_record(self, request: RunRequest, answer: dict[str, Any], **course: Any) -> None:
        """`run.json` beside Harbor's result: the request without the data set's row, its course, and our answer."""
        asked = request.model_dump(exclude={"api_key"})
        record = {"request": asked, "run_id": self.scope.run_id, **course, "answer": answer}
        try:
            (self.trial.paths.trial_dir / RECORD).write_text(json.dumps(record, indent=1))
        except OSError as error:
            LOG.warning("trial %s: run.json could not be written: %s", self.name, error)


def collected(task: TaskDefinition) -> list[str]:
    """What Harbor downloads when the agent is done, if nothing changes it meanwhile."""
    paths = EnvironmentPaths.for_os(task.environment.os)
    hooks = [*task.verifier.collect, *(hook for step in task.steps or [] for hook in step.verifier.collect)]
    named = [ArtifactConfig(source=one) if isinstance(one, str) else one for one in task.artifacts]
    plain = [one.source for one in named if not one.exclude and BaseEnvironment.is_main_service(one.service)]
    return [str(paths.agent_dir), *([] if hooks else dict.fromkeys([str(paths.artifacts_dir), *plain]))]


def config_of(
    name: str, task_dir: Path, agent: AgentConfig, provider: SandboxProvider, settings: Settings
) -> TrialConfig:
    return TrialConfig(
        task=TaskConfig(path=task_dir),
        trial_name=name,
        trials_dir=settings.trials_dir,
        agent=agent,
        environment=provider.environment(),
        verifier=VerifierConfig(max_timeout_sec=settings.budgets.verifier_s),
        override_error_policy=ERROR_POLICY,
    )


def seconds(timing: TimingInfo | None) -> float | None:
    if timing is None or timing.started_at is None or timing.finished_at is None:
        return None
    return max((timing.finished_at - timing.started_at).total_seconds(), 0.0)


def after(moment: datetime, timing: TimingInfo | None) -> bool:
    return timing is not None and timing.finished_at is not None and moment >= timing.finished_at
