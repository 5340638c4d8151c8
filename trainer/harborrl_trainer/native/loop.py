"""The training loop: collect, keep, dump, train, publish weights, save, evaluate. All else is a step it calls."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

from harborrl_trainer.errors import ConfigurationError, InfrastructureError, TrainerError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.layout import IncarnationLayout, RunLayout
from harborrl_trainer.native import checkpoint, metrics, records, samples
from harborrl_trainer.native.collect import Collector
from harborrl_trainer.native.plan import plan_evaluation, plan_rollout
from harborrl_trainer.native.policy import Interrupted
from harborrl_trainer.native.samples import Sample
from harborrl_trainer.prompt_rows import Prompt
from harborrl_trainer.rollout.groups import EveryGroupAborted, EveryGroupHopeless, Group, keep_whole


class Stopped(Exception):  # noqa: N818 - named after what happened
    """A stop was requested; the weights are those of the last rollout that was trained."""


@dataclass
class Trainer:
    job: JobDocument
    layout: IncarnationLayout
    prompts: Sequence[Prompt]
    eval_prompts: Sequence[Prompt]
    policy: Any
    """Handle of a PolicyActor."""
    engine: Any
    """Handle of an EngineActor."""
    collector: Collector
    stop: asyncio.Event
    trained: int
    """Rollouts trained into the policy over the whole run: the next rollout's id, and the weights' version."""
    saved: int
    """Rollouts held by the newest checkpoint."""
    drawn: int
    """Prompts drawn for the rollouts that were trained. Not their product with the batch size: an edit of the job
    between two attempts may have changed that."""
    judged: bool = False
    """Whether an earlier incarnation has evaluated the weights that this one begins with."""

    async def run(self) -> None:
        """Until the last rollout; raises Stopped after a stop request, with a checkpoint of all that was trained."""
        try:
            await self._publish_weights()
            if self._evaluation_is_due() and not self.judged:
                await self._evaluate()
            for rollout in range(self.trained, self.job.config.num_rollout):
                await self._step(rollout)
        except Stopped:
            await self._save()
            raise

    async def _step(self, rollout: int) -> None:
        started = time.monotonic()
        groups = await self._unless_stopped(
            self.collector.collect(plan_rollout(rollout, self.prompts, self.job.config, self.drawn))
        )
        collected = time.monotonic()
        try:
            kept = self._keep(groups)
        except TrainerError:
            await self._save()  # what the rollouts before this one have taught
            raise
        self._dump_rollout(rollout, kept)
        report = await self.train_on(rollout, kept)
        synced_s = await self._publish_weights()
        line = metrics.step(
            rollout, groups, kept, report, rollout_s=collected - started, sync_s=synced_s, version=self.trained
        )
        records.append_line(self.layout.metrics, line)
        await self._dump_engine_log(f"{rollout}")
        _say(metrics.sentence(line))
        last = self.trained == self.job.config.num_rollout
        if last or self.trained % self.job.config.save_interval == 0:
            await self._save()
        if self._evaluation_is_due():
            await self._evaluate()

    def _evaluation_is_due(self) -> bool:
        """Of the weights as they are: those of the model, every `interval` rollouts, and the last ones."""
        last = self.trained == self.job.config.num_rollout
        return self.job.eval is not None and (last or self.trained % self.job.eval.interval == 0)

    def _keep(self, groups: list[Group[Sample]]) -> list[Group[Sample]]:
        try:
            return keep_whole(groups)
        except EveryGroupHopeless as error:
            raise ConfigurationError(
                f"rollout: {error}; correct the data set, the tasks volume or agentServer.agentName"
            ) from error
        except EveryGroupAborted as error:
            raise InfrastructureError(
                f"rollout: {error}; look at the agent server and its sandboxes, the run goes on from its checkpoint"
            ) from error

    def _dump_rollout(self, rollout: int, groups: Sequence[Group[Sample]], *, evaluation: bool = False) -> None:
        ends = [end for group in groups for end in group.ends if end.payload and end.verdict.reward is not None]
        documents, lines = [], []
        for end in ends:
            sample, reward = end.payload, end.verdict.reward
            if sample is None or reward is None:
                continue
            status = end.verdict.status
            metadata = {
                **sample.prompt.metadata,
                "exit_status": end.outcome,
                "session": end.session,
                "agent_metrics": end.agent_metrics,
            }
            documents.append(samples.document(sample, rollout=rollout, reward=reward, status=status, metadata=metadata))
            lines.append(samples.trajectory_line(sample, reward=reward, status=status))
        records.dump_lines(self.layout.trajectory_file(rollout, evaluation=evaluation), lines)
        records.dump(
            self.layout.rollout_file(rollout, evaluation=evaluation),
            {"rollout_id": rollout, "metadata": {"weight_version": self.trained}, "samples": documents},
        )

    async def train_on(self, rollout: int, kept: list[Group[Sample]]) -> Any:
        """The optimizer step(s) on a rollout. A stop request is heard until the first of them changes the weights."""
        batch = samples.train_samples(kept)
        training = asyncio.ensure_future(self.policy.train.remote(batch))
        stopping = asyncio.create_task(self.stop.wait())
        await asyncio.wait({training, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not training.done():
            await self.policy.interrupt.remote()
        try:
            report = await training
        except Interrupted as error:
            raise Stopped from error
        self.trained = rollout + 1
        self.drawn += self.job.config.rollout_batch_size
        ends = [end for group in kept for end in group.ends]
        data = samples.train_data(
            batch,
            report,
            rollout=rollout,
            indices=[end.payload.index for end in ends if end.payload],
            rewards=[reward for group in kept for reward in group.rewards],
        )
        records.dump(self.layout.train_file(rollout, 0), data)
        return report

    async def _publish_weights(self) -> float:
        """The policy's weights to the engine through the object store, under the version `trained`; seconds it took."""
        started = time.monotonic()
        await self.engine.load.remote(self.policy.weights.remote(), self.trained)
        return time.monotonic() - started

    async def _save(self) -> None:
        if self.trained == self.saved:
            return
        rollout = self.trained - 1
        with checkpoint.under_construction(self.layout, rollout) as directory:
            await self.policy.save.remote(
                str(directory),
                tokenizer_from=str(self.job.model.path),
                with_optimizer=not self.job.config.no_save_optim,
            )
            checkpoint.finish(self.layout, rollout, directory, self._data_state())
        self.saved = self.trained
        checkpoint.prune(RunLayout.of(self.job), self.layout.id, self.job.checkpoint.keep)
        _say(f"saved checkpoint of rollout {rollout} to {self.layout.checkpoint(rollout)}")

    def _data_state(self) -> dict[str, Any]:
        """Where the data stand. `sample_group_index` is what a resume goes on from, the rest is for people."""
        return {
            "trained": self.trained,
            "sample_offset": self.drawn % len(self.prompts),
            "epoch_id": self.drawn // len(self.prompts),
            checkpoint.DRAWN: self.drawn,
            "sample_index": self.drawn * self.job.config.n_samples_per_prompt,
            "prompts": len(self.prompts),
            "seed": self.job.config.seed,
        }

    async def _evaluate(self) -> None:
        if not self.job.eval or not self.eval_prompts:
            return
        started = time.monotonic()
        plans = plan_evaluation(self.trained, self.eval_prompts, self.job.eval.samples_per_prompt, self.job.config.seed)
        groups = await self._unless_stopped(self.collector.collect(plans))
        if not any(group.rewards for group in groups):
            await self._save()
            raise InfrastructureError(
                f"evaluation: no trial has a reward, last cause: {groups[-1].aborted[-1].verdict.cause}; "
                "look at the agent server and its sandboxes, it is evaluated again when the run goes on"
            )
        line = metrics.evaluation(self.trained, groups, seconds=time.monotonic() - started)
        records.append_line(self.layout.metrics, line)
        # After its line: the dump is what tells the next incarnation that this evaluation is done.
        self._dump_rollout(self.trained, groups, evaluation=True)
        await self._dump_engine_log(f"eval_{self.trained}")
        _say(metrics.sentence(line))

    async def _dump_engine_log(self, name: str) -> None:
        log = await self.engine.drain_log.remote()
        records.dump_lines(self.layout.traces / "engine_log" / f"{name}.jsonl", log)

    async def _unless_stopped[Result](self, work: Awaitable[Result]) -> Result:
        """The result, unless a stop request comes first: then the work is cancelled, and so are its trials."""
        task = asyncio.ensure_future(work)
        stopping = asyncio.create_task(self.stop.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self.stop.is_set():
                raise Stopped
            return await task
        finally:
            task.cancel()
            stopping.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)


def _say(sentence: str) -> None:
    sys.stdout.write(sentence + "\n")
    sys.stdout.flush()
