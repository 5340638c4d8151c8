"""The loop's decisions, with stand-ins that answer at once in place of the Ray actors."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harborrl_trainer.checkpoints import StartPoint
from harborrl_trainer.errors import ConfigurationError, InfrastructureError
from harborrl_trainer.layout import RunLayout
from harborrl_trainer.native.loop import Stopped, Trainer
from harborrl_trainer.native.policy import Interrupted
from harborrl_trainer.native.run import already_judged
from harborrl_trainer.native.samples import Sample
from harborrl_trainer.prompt_rows import Prompt
from harborrl_trainer.rollout.groups import Group
from harborrl_trainer.rollout.outcomes import Verdict, aborted
from harborrl_trainer.rollout.trials import TrialEnd, TrialHistory
from support.jobs import job as make_job
from support.jobs import make_checkpoint, make_volumes


class Handle:
    """Like a Ray actor's: `handle.method.remote(...)` is awaitable. Answers with what the test gave, or raises it."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.called: list[str] = []

    def __getattr__(self, method: str) -> Any:
        async def remote(*_: Any, **__: Any) -> Any:
            self.called.append(method)
            answer = self.answers.get(method)
            if isinstance(answer, Exception):
                raise answer
            return answer() if callable(answer) else answer

        return type("Method", (), {"remote": staticmethod(lambda *a, **k: asyncio.ensure_future(remote(*a, **k)))})


class Groups:
    """A collector that hands out the groups it was given."""

    def __init__(self, groups: list[Group[Sample]], *, hang: bool = False) -> None:
        self.groups = groups
        self.hang = hang
        self.cancelled = False
        self.planned: list[int] = []

    async def collect(self, plans: Any) -> list[Group[Sample]]:
        self.planned = [group[0].group for group in plans]
        try:
            if self.hang:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return self.groups


async def test_when_every_group_aborts_the_run_gives_up_with_the_last_cause(tmp_path: Path) -> None:
    trainer = _trainer(tmp_path, Groups([_group(aborted("SandboxUnavailable"))] * 2), Handle(weights={}))
    with pytest.raises(InfrastructureError, match=r"all 2 groups .* last cause: SandboxUnavailable"):
        await trainer.run()
    assert not trainer.layout.rollout_file(0).exists()


async def test_what_was_trained_before_every_group_aborted_is_saved(tmp_path: Path) -> None:
    policy = Handle(weights={})
    trainer = _trainer(tmp_path, Groups([_group(aborted("SandboxUnavailable"))] * 2), policy)
    trainer.trained, trainer.saved = 2, 0
    with pytest.raises(InfrastructureError):
        await trainer.run()
    assert "save" in policy.called
    assert trainer.saved == 2


async def test_when_no_retry_can_heal_what_aborts_every_group_the_configuration_is_to_blame(tmp_path: Path) -> None:
    verdict = aborted("InvalidAgent: agent 'bsh' is unknown", retryable=False)
    trainer = _trainer(tmp_path, Groups([_group(verdict, outcome="InvalidAgent")] * 2), Handle(weights={}))
    with pytest.raises(ConfigurationError, match=r"InvalidAgent: agent 'bsh' is unknown .* correct the data set"):
        await trainer.run()


async def test_a_stop_while_trials_run_cancels_them_and_saves_nothing_that_was_not_trained(tmp_path: Path) -> None:
    groups, policy = Groups([], hang=True), Handle(weights={})
    trainer = _trainer(tmp_path, groups, policy)
    asyncio.get_running_loop().call_soon(trainer.stop.set)
    with pytest.raises(Stopped):
        await trainer.run()
    assert groups.cancelled
    assert "save" not in policy.called


async def test_a_stop_while_training_interrupts_it_and_the_rollout_counts_as_not_trained(tmp_path: Path) -> None:
    trainer = _trainer(tmp_path, Groups([_group(Verdict("completed", 1.0))]), Handle(weights={}, train=Interrupted()))
    trainer.prompts = ()
    trainer.stop.set()
    with pytest.raises(Stopped):
        await trainer.train_on(0, [])
    assert trainer.trained == 0
    assert not trainer.layout.train_file(0, 0).exists()


@pytest.mark.parametrize(("trained", "judged", "evaluates"), [(3, False, True), (3, True, False), (1, False, False)])
async def test_an_evaluation_that_was_broken_off_is_made_up_for_at_the_start_and_never_twice(
    tmp_path: Path, trained: int, judged: bool, evaluates: bool
) -> None:
    trainer = _trainer(tmp_path, Groups([_group(Verdict("completed", 1.0))]), Handle(weights={}), evaluated=True)
    trainer.trained = trainer.saved = trained
    trainer.judged = judged
    if trained < trainer.job.config.num_rollout:
        trainer.stop.set()
        with pytest.raises(Stopped):
            await trainer.run()
    else:
        await trainer.run()
    assert trainer.layout.rollout_file(trained, evaluation=True).exists() is evaluates


async def test_prompts_go_on_from_where_the_checkpoint_stood_whatever_the_batch_size_is_now(tmp_path: Path) -> None:
    groups = Groups([_group(aborted("enough"))])
    trainer = _trainer(tmp_path, groups, Handle(weights={}))
    trainer.trained, trainer.drawn = 2, 10
    with pytest.raises(InfrastructureError):
        await trainer.run()
    assert groups.planned == [10, 11]


async def test_an_evaluation_of_which_nothing_came_back_is_no_zero(tmp_path: Path) -> None:
    trainer = _trainer(tmp_path, Groups([_group(aborted("SandboxLost"))]), Handle(weights={}), evaluated=True)
    with pytest.raises(InfrastructureError, match=r"evaluation: no trial has a reward, last cause: SandboxLost"):
        await trainer.run()
    assert not trainer.layout.metrics.exists()


def test_weights_count_as_judged_by_whoever_had_them(tmp_path: Path) -> None:
    make_volumes(tmp_path)
    job = make_job(tmp_path)
    run = RunLayout.of(job)
    saved = make_checkpoint(run.incarnation(1, 2).checkpoint(7))
    _evaluation_dump(run, 1, 8)  # of weights that were lost: incarnation 2 trained rollout 7 anew
    assert not already_judged(job, StartPoint(8, saved))
    _evaluation_dump(run, 3, 8)
    assert already_judged(job, StartPoint(8, saved))


def _evaluation_dump(run: RunLayout, incarnation: int, trained: int) -> None:
    dump = run.incarnation(1, incarnation).rollout_file(trained, evaluation=True)
    dump.parent.mkdir(parents=True)
    dump.touch()


def _trainer(volumes: Path, collector: Any, policy: Handle, *, evaluated: bool = False) -> Trainer:
    make_volumes(volumes)
    held_out = {"jsonl": str(volumes / "eval.jsonl"), "interval": 2}
    job = make_job(volumes, eval=held_out if evaluated else None)
    prompts = [Prompt(0, "do", "task", {"instance_id": "task"}, "task")]
    return Trainer(
        job=job,
        layout=RunLayout.of(job).incarnation(1, 1),
        prompts=prompts,
        eval_prompts=prompts,
        policy=policy,
        engine=Handle(drain_log=list),
        collector=collector,
        stop=asyncio.Event(),
        trained=0,
        saved=0,
        drawn=0,
    )


def _group(verdict: Verdict, outcome: str = "x") -> Group[Sample]:
    return Group(0, "task", [TrialHistory(TrialEnd(verdict, outcome=outcome, session="s"))])
