"""Trials of one rollout through the agent server: every sample that has a place is in flight; groups end as wholes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from harborrl_trainer.job import JobDocument
from harborrl_trainer.native.plan import GroupPlan, TrialPlan
from harborrl_trainer.native.samples import Sample
from harborrl_trainer.native.session import Session, trajectory
from harborrl_trainer.native.session_server import SessionStore
from harborrl_trainer.rollout.agent_client import AgentClient, AgentServerError
from harborrl_trainer.rollout.groups import Group, drop_cause, drop_reason
from harborrl_trainer.rollout.inflight import InFlight
from harborrl_trainer.rollout.ledger import Ledger
from harborrl_trainer.rollout.outcomes import judge
from harborrl_trainer.rollout.trial_log import TrialLog, TrialRecord, trial_record
from harborrl_trainer.rollout.trials import TrialEnd, TrialHistory, end_without_reply, gather_or_cancel, run_trial


@dataclass(frozen=True)
class Collector:
    job: JobDocument
    store: SessionStore
    client: AgentClient
    places: InFlight
    log: TrialLog
    session_address: str
    """`host:port` under which the agent server reaches the session server."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    ledger: Ledger = field(default_factory=Ledger)

    async def collect(self, plans: Sequence[GroupPlan]) -> list[Group[Sample]]:
        return await gather_or_cancel([self._group(plan) for plan in plans])

    async def _group(self, plan: GroupPlan) -> Group[Sample]:
        trials = await gather_or_cancel([self._trial(trial) for trial in plan])
        group = Group(id=plan[0].group, instance_id=plan[0].prompt.instance_id, trials=trials)
        reason = drop_reason(group)
        for trial, history in zip(plan, trials, strict=True):
            self.log.append(record(trial, history, reason))
        if not plan[0].evaluation:
            self.ledger.group(drop_cause(group))
        return group

    async def _trial(self, plan: TrialPlan) -> TrialHistory[Sample]:
        async def once(_run: int, ceiling_s: float) -> TrialEnd[Sample]:
            return await self._run_once(plan, ceiling_s)

        return await run_trial(
            once,
            places=self.places,
            ceiling_s=self.job.rollout.agent_trial_timeout_seconds,
            clock=self.clock,
            counter=self.ledger,
            needed_s=self.job.agent_server.budgets.total_seconds,
            room=self.client.await_room,
        )

    async def _run_once(self, plan: TrialPlan, ceiling_s: float) -> TrialEnd[Sample]:
        session = self.store.open()
        started = self.clock()
        try:
            reply = await self.client.run(self._request(plan, session), ceiling_s=ceiling_s)
        except AgentServerError as error:
            return end_without_reply(error, session.id)
        finally:
            self.store.close(session.id)
        turns = len(session.turns)
        verdict = judge(
            reply,
            on_agent_timeout=self.job.rollout.on_agent_timeout,
            turns=turns,
            cut_by_length=turns > 0 and session.turns[-1].finish_reason == "length",
            generation_aborted=any(turn.finish_reason == "abort" for turn in session.turns),
        )
        sample = _sample(plan, session, self.store) if turns else None
        return TrialEnd(
            verdict=verdict,
            outcome=verdict.outcome,
            session=session.id,
            payload=sample,
            seconds={**reply.phase_seconds, "total": self.clock() - started},
            turns=turns,
            prompt_tokens=len(sample.trajectory.prompt_ids) if sample else 0,
            response_tokens=sum(sample.trajectory.loss_mask) if sample else 0,
            weight_version=session.turns[0].weight_version if turns else 0,
            agent_metrics=reply.agent_metrics,
        )

    def _request(self, plan: TrialPlan, session: Session) -> dict[str, Any]:
        config = self.job.config
        return {
            **plan.prompt.metadata,
            "instance_id": plan.prompt.instance_id,
            "agent_name": self.job.agent_server.agent_name,
            "base_url": f"http://{self.session_address}/sessions/{session.id}/v1",
            "model": "openai/model",
            "sampling_params": {
                "temperature": config.rollout_temperature,
                "top_p": 1.0,
                "max_tokens": config.rollout_max_response_len,
                "seed": plan.seed,
            },
            "max_seq_len": self.job.max_seq_len,
            "session_server_id": self.session_address,
            "session_server_instance_id": self.store.instance_id,
        }


def record(plan: TrialPlan, history: TrialHistory[Sample], reason: str) -> TrialRecord:
    return trial_record(
        history,
        now=datetime.now(UTC),
        rollout_id=plan.rollout,
        group_id=plan.group,
        sample_id=plan.sample,
        instance_id=plan.prompt.instance_id,
        drop_reason=reason,
        evaluation=plan.evaluation,
    )


def _sample(plan: TrialPlan, session: Session, store: SessionStore) -> Sample:
    finished = trajectory(session)
    return Sample(
        index=plan.sample,
        group_index=plan.group,
        prompt=plan.prompt,
        trajectory=finished,
        messages=tuple(session.messages),
        response=store.text(finished.response_ids),
    )
