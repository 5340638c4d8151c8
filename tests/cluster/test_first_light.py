"""The quickstart job from `kubectl apply` to Succeeded, and whether what it left says the same as its status."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from support.kube import EVENTS, Manifest, condition
from support.workspace import EXAMPLES, Workspace, json_lines

pytestmark = pytest.mark.cluster

NAME = "quickstart"
ROLLOUTS, TRIALS = 3, 24
SECONDS = 480
"""Ten times what an idle machine of two cores needs: pace is not what is tested."""


@dataclass(frozen=True)
class Run:
    """A finished run: its last state and its small files, by path below the run's folder on each volume."""

    job: Manifest
    traces: Mapping[str, bytes]
    checkpoints: Mapping[str, bytes]
    sizes: Mapping[str, int]
    trials: Mapping[str, bytes]

    @property
    def records(self) -> list[dict[str, Any]]:
        return json_lines(self.trials["a1/i1/trials/native.jsonl"])

    @property
    def harbor(self) -> dict[str, dict[str, bytes]]:
        """Session -> files of Harbor's trial directory that served it."""
        folders: dict[str, dict[str, bytes]] = {}
        for path, content in self.trials.items():
            part, _, rest = path.partition("/")
            if part == "harbor":
                trial, _, inner = rest.partition("/")
                folders.setdefault(trial, {})[inner] = content
        return {session_of(files): files for files in folders.values()}


def session_of(files: Mapping[str, bytes]) -> str:
    url: str = json.loads(files["run.json"])["request"]["base_url"]
    return url.removesuffix("/v1").rpartition("/")[2]


@pytest.fixture(scope="module")
def run(workspace: Workspace) -> Run:
    workspace.kubectl.ok("apply", "--filename", str(EXAMPLES / "job.yaml"))
    wait = ("wait", f"hrl/{NAME}", "--for=condition=Succeeded", f"--timeout={SECONDS}s")
    workspace.kubectl.ok(*wait, timeout=SECONDS + 10)
    job = workspace.job(NAME)
    path = job["status"]["runPath"]
    listed = workspace.read(f"cd checkpoints/{path} && find . -type f -printf '%P\\t%s\\n'")
    return Run(
        job=job,
        traces=workspace.files(f"traces/{path}", "*"),
        checkpoints=workspace.files(f"checkpoints/{path}", "*.json", "*.txt"),
        sizes={name: int(size) for name, size in (line.split("\t") for line in listed.splitlines())},
        trials=workspace.files(f"trials/{path}", "*.jsonl", "*/run.json", "*/verifier/reward*"),
    )


def test_the_status_counts_every_rollout_and_every_trial(run: Run) -> None:
    rollout = run.job["status"]["rollout"]
    counted = {key: rollout[key] for key in ("collected", "trained", "total", "trials", "lostRollouts")}
    assert counted == {"collected": 3, "trained": 3, "total": 3, "trials": TRIALS, "lostRollouts": 0}
    attempts = run.job["status"]["attempts"]
    assert [(a["number"], a["outcome"]) for a in attempts] == [(1, "Succeeded")]


def test_one_line_of_kubectl_get_tells_phase_step_and_reward(run: Run, workspace: Workspace) -> None:
    header, line = workspace.kubectl.ok("get", "hrl", NAME).splitlines()
    shown = dict(zip(header.split(), line.split(), strict=True))
    reward = run.job["status"]["rollout"]["rewardMean"]
    assert (shown["PHASE"], shown["STEP"], shown["REASON"]) == ("Succeeded", "3/3", "Completed")
    assert float(shown["REWARD"]) == pytest.approx(reward)


def test_the_conditions_say_what_became_of_the_job_and_where_it_lies(run: Run) -> None:
    status = {kind: condition(run.job, kind)["status"] for kind in ("Admitted", "Finished", "Succeeded", "Failed")}
    assert status == {"Admitted": "True", "Finished": "True", "Succeeded": "True", "Failed": "False"}
    said = condition(run.job, "Succeeded")["message"]
    assert f"{ROLLOUTS} of {ROLLOUTS} rollouts trained" in said
    assert run.job["status"]["runPath"] in said


def test_the_events_tell_the_story_in_its_order(run: Run, workspace: Workspace) -> None:
    mine = [e for e in workspace.kube.objects(EVENTS, workspace.namespace) if e["involvedObject"]["name"] == NAME]
    mine = [event for event in mine if event["involvedObject"]["uid"] == run.job["metadata"]["uid"]]
    told = {
        event["reason"]: event
        for event in sorted(mine, key=lambda event: str(event["lastTimestamp"] or event["eventTime"]))
    }
    story = ["AgentServerReady", "Admitted", "TrainerReady", "Completed"]
    assert [reason for reason in told if reason in story] == story
    assert {event["type"] for event in mine} == {"Normal"}


def test_the_volume_holds_the_dumps_of_every_rollout(run: Run) -> None:
    expected = {f"a1/i1/traces/rollout_data/{n}.pt" for n in range(ROLLOUTS)}
    expected |= {f"a1/i1/traces/train_data/{n}_0.pt" for n in range(ROLLOUTS)}
    expected |= {f"a1/i1/traces/trajectory/{n}.jsonl" for n in range(ROLLOUTS)}
    expected |= {"a1/i1/traces/metrics.jsonl", "a1/i1/traces/driver.log"}
    assert expected <= run.traces.keys()
    assert all(run.traces[path] for path in expected)
    steps = json_lines(run.traces["a1/i1/traces/metrics.jsonl"])
    assert [step["rollout_id"] for step in steps if step["kind"] == "step"] == list(range(ROLLOUTS))


def test_the_last_checkpoint_is_whole(run: Run) -> None:
    path = f"a1/i1/checkpoints/iter_{ROLLOUTS - 1:07d}"
    seal = json.loads(run.checkpoints[f"{path}/complete.json"])
    assert seal["rollout_id"] == run.job["status"]["checkpoint"]["rolloutId"] == ROLLOUTS - 1
    assert {"model.safetensors", "optimizer.pt", "config.json"} <= seal["files"].keys()
    assert seal["files"] == {name: run.sizes[f"{path}/{name}"] for name in seal["files"]}


def test_the_reward_of_a_trial_is_the_same_in_its_record_and_in_the_trajectory(run: Run) -> None:
    records = run.records
    assert len(records) == TRIALS
    trained = {
        (rollout, sample["sample_index"]): sample["reward"]
        for rollout in range(ROLLOUTS)
        for sample in json_lines(run.traces[f"a1/i1/traces/trajectory/{rollout}.jsonl"])
    }
    assert {(r["rollout_id"], r["sample_id"]): r["reward"] for r in records if r["kept"]} == trained
    mean = sum(r["reward"] for r in records if r["rollout_id"] == ROLLOUTS - 1) * ROLLOUTS / TRIALS
    assert run.job["status"]["rollout"]["rewardMean"] == pytest.approx(mean, abs=1e-3)


def test_every_reward_is_what_the_verifier_wrote(run: Run) -> None:
    harbor = run.harbor
    written = {record["session"]: verdict(harbor[record["session"]]) for record in run.records}
    assert len(written) == TRIALS
    assert written == {record["session"]: pytest.approx(record["reward"]) for record in run.records}


def verdict(files: Mapping[str, bytes]) -> float:
    """The number in the verifier's own file of a trial."""
    return float(files["verifier/reward.txt"])


def test_what_costs_something_is_released_after_the_end(run: Run, workspace: Workspace) -> None:
    assert (
        condition(run.job, "TrainerReady")["reason"] == condition(run.job, "AgentServerReady")["reason"] == "Released"
    )
    workspace.until_held(lambda held: not [thing for thing in held if thing.startswith(COSTLY)], NAME, timeout=60)


COSTLY = tuple(f"{kind} " for kind in ("Pod", "Deployment", "ReplicaSet", "RayCluster"))
