"""`make learn`: does the model get better? Evaluation, 30 steps, evaluation on the same tasks; a table and a plot."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from demo.cluster import Cluster
from demo.follow import StoppedError, follow
from demo.plot import draw
from demo.prepare import Tools
from demo.quickstart import EXAMPLES, NAMESPACE, fill_volumes, read_metrics, show, submit
from demo.report import Evaluation, Line, difference, evaluations, rises, spread_share, steps
from demo.shell import ROOT, CommandError
from demo.story import Job, minutes_taken, succeeded

NAME = "learn"
RESULTS = ROOT / "benchmarks" / "results" / "learn"
LEAST_SPREAD = 0.30
"""Share of groups with spread below which going on wastes hours: without spread a group's advantages are all zero."""
FIRST_JUDGED_STEP = 4
ADVICE = (
    "Make tasks easier or add worked examples to agentKwargs until some samples of a group succeed, "
    "or raise rolloutTemperature so that they differ."
)


def run(tools: Tools) -> int:
    """Exit code 0 when the evaluation rose by more than two standard errors. Interrupted, it goes on where it was."""
    cluster = Cluster(tools.shell, tools.kubectl, NAMESPACE)
    fill_volumes(cluster)
    submit(cluster, NAME, EXAMPLES / "learn.yaml")
    watch = Watch(cluster)
    try:
        job = follow(cluster, NAME, every=5.0, look=watch.look)
    except StoppedError as error:
        print(f"error: {error}")  # noqa: T201 - a terminal program
        return 1
    measured = read_metrics(cluster, job)
    show(f"HarborRLJob {NAMESPACE}/{NAME}", measured)
    verdict = report(measured, minutes=minutes_taken(job))
    print(verdict)  # noqa: T201 - a terminal program
    before, after = first_and_last(measured)
    return 0 if succeeded(job) and before and after and rises(before, after) else 1


@dataclass
class Watch:
    """Reads the metrics until they tell of every rollout that was trained; ends a run that cannot learn."""

    cluster: Cluster
    told: set[int] = field(default_factory=set)

    def look(self, job: Job) -> str | None:
        rollout = job.get("status", {}).get("rollout") or {}
        # A step's line follows its dump, so one look may come between the two: the next one reads again.
        if rollout.get("trained", 0) <= len(self.told):
            return None
        try:
            done = steps(read_metrics(self.cluster, job))
        except CommandError as error:
            print(f"           the metrics cannot be read now, the next look tries again: {error}", flush=True)  # noqa: T201 - same
            return None
        share = spread_share(done)
        for step in done:
            if step["rollout_id"] not in self.told:
                self.told.add(step["rollout_id"])
                print(f"           {sentence(step)}; groups with spread so far {share:.0%}", flush=True)  # noqa: T201 - same
        if len(done) >= FIRST_JUDGED_STEP and share < LEAST_SPREAD:
            self.cluster.shell.run(self.cluster.command("delete", "hrl", NAME))
            return f"only {share:.0%} of the groups have rewards that differ, below {LEAST_SPREAD:.0%}. {ADVICE}"
        return None


def sentence(step: Line) -> str:
    return (
        f"step {step['rollout_id']}: reward {step['reward_mean']:.3f}, {step['trials']} trials, "
        f"rollout {step['rollout_s']:.0f} s, train {step['train_s']:.0f} s"
    )


def first_and_last(measured: list[Line]) -> tuple[Evaluation | None, Evaluation | None]:
    found = evaluations(measured)
    if len(found) < 2:
        return None, None
    return found[min(found)], found[max(found)]


def report(measured: list[Line], *, minutes: float) -> str:
    """Write metrics, table and plot to `benchmarks/results/learn` and give the verdict."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    before, after = first_and_last(measured)
    (RESULTS / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in measured))
    verdict = say(before, after)
    trained = steps(measured)
    (RESULTS / "README.md").write_text(page(trained, verdict, minutes))
    draw(trained, before, after, RESULTS / "reward.png")
    return f"{verdict}\nTable and plot: {RESULTS.relative_to(ROOT)}/README.md and reward.png"


def say(before: Evaluation | None, after: Evaluation | None) -> str:
    if before is None or after is None:
        return "There are not two evaluations to compare."
    gain, error = difference(before, after)
    judged = "more" if rises(before, after) else "not more"
    return (
        f"Evaluation before: {before}. After: {after}. "
        f"Difference {gain:+.3f}, {judged} than two standard errors of {error:.3f}."
    )


def page(trained: list[Line], verdict: str, minutes: float) -> str:
    rows = [
        f"| {step['rollout_id']} | {step['reward_mean']:.3f} | {step['groups_with_spread']}/{step['groups']} "
        f"| {step['rollout_s']:.0f} | {step['train_s']:.0f} | {step['sampled_tokens']} | {step['grad_norm']:.2f} |"
        for step in trained
    ]
    head = [
        "# make learn: what was seen",
        "",
        verdict,
        f"The job took {minutes:.0f} minutes. ![reward of each step](reward.png)",
        "",
        "| step | reward | groups with spread | rollout s | train s | sampled tokens | grad norm |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows]) + "\n"
