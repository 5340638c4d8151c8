"""`make demo`: one HarborRLJob from `kubectl apply` to `Succeeded`, and what it did."""

from __future__ import annotations

import os
import time
from pathlib import Path

from devcluster.environment import exports
from devcluster.settings import load_settings
from rich.console import Console
from rich.table import Table

from demo.cluster import Cluster
from demo.follow import StoppedError, follow
from demo.memory import Peak
from demo.prepare import Tools, image
from demo.report import Line, lines, steps
from demo.story import Job, is_finished, succeeded

NAMESPACE = "quickstart"
NAME = "quickstart"
CLAIM = "quickstart"
EXAMPLES = Path("examples/quickstart")


def run(tools: Tools, peak: Peak, started: float) -> int:
    """Exit code 0 when the job succeeded. A job that still runs is picked up again; a finished one is run anew."""
    cluster = Cluster(tools.shell, tools.kubectl, NAMESPACE)
    fill_volumes(cluster)
    submit(cluster, NAME, EXAMPLES / "job.yaml")

    def look(_job: Job) -> None:
        peak.sample()

    try:
        job = follow(cluster, NAME, every=2.0, look=look)
    except StoppedError as error:
        print(f"error: {error}")  # noqa: T201 - a terminal program
        return 1
    cluster.shell.run(cluster.command("get", "hrl"))
    show(f"HarborRLJob {NAMESPACE}/{NAME}: three GRPO steps", read_metrics(cluster, job))
    whole = f"Whole time {time.monotonic() - started:.0f} s; {peak}."
    print(closing(job, access=exports(load_settings(), os.environ), whole=whole))  # noqa: T201 - a terminal program
    return 0 if succeeded(job) else 1


def fill_volumes(cluster: Cluster) -> None:
    """The claim, and on it the model and the tasks; a finished copy job runs again, because the image may be newer."""
    cluster.make_namespace()
    cluster.shell.run(cluster.command("delete", "job", "quickstart-data", "--ignore-not-found"))
    cluster.shell.run(cluster.command("apply", "--filename", str(EXAMPLES / "volumes.yaml")))
    cluster.shell.run(cluster.command("wait", "job/quickstart-data", "--for", "condition=Complete", "--timeout", "5m"))


def submit(cluster: Cluster, name: str, manifest: Path) -> None:
    """Apply the job. One that has ended is replaced by a new run; one that still goes on is left to go on."""
    found = cluster.job(name)
    if found is not None and is_finished(found):
        cluster.shell.run(cluster.command("delete", "hrl", name, "--wait"))
    cluster.shell.run(cluster.command("apply", "--filename", str(manifest)))


def run_directory(job: Job) -> str:
    """Where the run lies on each of its volumes (docs/contracts.md, On disk)."""
    meta = job["metadata"]
    return f"{meta['namespace']}/{meta['name']}-{meta['uid'][:8]}"


def read_metrics(cluster: Cluster, job: Job) -> list[Line]:
    """Every attempt's and incarnation's metrics, oldest first; none before the first step."""
    files = f"traces/{run_directory(job)}/a*/i*/traces/metrics.jsonl"
    text = cluster.script(CLAIM, f'for file in {files}; do [ ! -e "$file" ] || cat "$file"; done', image=image("base"))
    return lines(text)


def show(title: str, measured: list[Line]) -> None:
    table = Table(title=title)
    for column in ("rollout", "reward", "groups with spread", "rollout s", "train s", "tokens", "loss", "grad norm"):
        table.add_column(column, justify="right")
    for step in steps(measured):
        table.add_row(
            str(step["rollout_id"]),
            f"{step['reward_mean']:.3f}",
            f"{step['groups_with_spread']} of {step['groups']}",
            f"{step['rollout_s']:.1f}",
            f"{step['train_s']:.1f}",
            str(step["sampled_tokens"]),
            f"{step['loss']:.4f}",
            f"{step['grad_norm']:.2f}",
        )
    Console().print(table)


def closing(job: Job, *, access: str, whole: str) -> str:
    """What to try next. `access` is the line that makes the user's own shell speak to this cluster."""
    kube = f"kubectl --namespace {NAMESPACE}"
    return f"""
On the claim `{CLAIM}`, below traces/ (dumps), checkpoints/ and trials/: {run_directory(job)}
{whole}

Try next; the first line makes this shell speak to the cluster:
  {access}
  {kube} describe hrl {NAME}
  {kube} get hrl {NAME} --output jsonpath='{{.status.rollout}}'
  {kube} apply --filename {EXAMPLES}/bad/timeouts.yaml     # refused by the API server
  make learn     # the longer run, with a learning curve
  make down      # remove the cluster again"""
