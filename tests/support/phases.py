"""How a job gets to each phase of its life and stays there, at little cost: only two of them train."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from support.kube import Manifest, brief, condition, name_of, status_of
from support.kubectl import Kubectl, operator_scaled_to_zero
from support.workspace import Workspace, example, trained

Operator = Literal["running", "absent"]
Seen = Callable[[Manifest], bool]
"""Whether a job shows what is waited for."""

SECONDS = 300
"""Longest wait for one step; a trainer that really starts takes a minute on an idle machine of two cores."""

SWEPT_SECONDS = 150
"""Two rounds of the sweeper and the ends of what hangs on an anchor."""

NO_IMAGE = "localhost/harborrl/no-such-image:dev"
NOWHERE = {"trainer.nodeSelector": {"harborrl.dev/tests": "nowhere"}}
"""Trainer pods that no node takes: nothing of theirs ever runs. A preflight does not heed the selector."""


@dataclass(frozen=True)
class Way:
    """A changed quickstart job waits at `ready`; `push` is what then makes it show `there`."""

    changes: Mapping[str, Any]
    there: Seen
    holds: str
    """Kind of which the job holds something in this phase: without it there would be nothing to delete."""
    push: Callable[[Workspace, Manifest], None] | None = None
    ready: Seen | None = None
    """None: as `there`."""
    is_over: bool = False
    """It holds no agent server any more: within a minute the operator's sweeper takes away what that left behind."""
    is_late: bool = False
    """Applied only when it is its turn: two trainers at once are more than a small machine has memory for."""


def shows(phase: str, kind: str = "", reason: str = "") -> Seen:
    def true(job: Manifest) -> bool:
        return status_of(job).get("phase") == phase and (not kind or condition(job, kind)["reason"] == reason)

    return true


def _waits_for_a_node(job: Manifest) -> bool:
    seen_head = (status_of(job).get("trainer") or {}).get("headPod")
    return bool(seen_head) and shows("StartingTrainer", "TrainerReady", "Unschedulable")(job)


def _was_restarted(job: Manifest) -> bool:
    attempts = status_of(job).get("attempts") or [{}]
    return bool(attempts[-1].get("restarts"))


def _suspend(workspace: Workspace, job: Manifest) -> None:
    workspace.kubectl.ok("patch", "hrl", name_of(job), "--type=merge", "--patch", '{"spec":{"suspend":true}}')


def _lose_head(workspace: Workspace, job: Manifest) -> None:
    workspace.kubectl.ok("delete", "pod", job["status"]["trainer"]["headPod"], "--wait=false")


def _lose_cluster(workspace: Workspace, job: Manifest) -> None:
    workspace.kubectl.ok("delete", "raycluster", job["status"]["trainer"]["rayCluster"], "--wait=false")


WAYS: Mapping[str, Way] = {
    "refused": Way(
        {"model.path": "no-such-model"}, shows("Refused", "Admitted", "ModelNotFound"), "Service", is_over=True
    ),
    "starting-agent-server": Way(
        {"agentServer.image": NO_IMAGE},
        shows("StartingAgentServer", "AgentServerReady", "ImagePullFailed"),
        "Deployment",
    ),
    "preflight": Way({"trainer.image": NO_IMAGE}, shows("Preflight", "Admitted", "ImagePullFailed"), "Pod"),
    "starting-trainer": Way(NOWHERE, _waits_for_a_node, "RayCluster"),
    "suspended": Way(
        {"agentServer.image": NO_IMAGE},
        shows("Suspended"),
        "Service",
        push=_suspend,
        ready=shows("StartingAgentServer"),
    ),
    "failed-and-kept": Way(
        {**NOWHERE, "retries": {"maxAttempts": 1, "keepClusterSeconds": 3600}},
        shows("Failed"),
        "RayCluster",
        push=_lose_head,
        ready=_waits_for_a_node,
        is_over=True,
    ),
    "succeeded": Way(
        {"trainer.config.numRollout": 1, "trainer.config.noSaveOptim": True, "ttlSecondsAfterFinished": 3600},
        shows("Succeeded"),
        "ConfigMap",
        is_over=True,
    ),
    # These two do not last: 15 s until the next attempt, and as long as a driver takes to save and its pods to end.
    "backing-off": Way(
        NOWHERE,
        shows("StartingTrainer", "TrainerReady", "BackingOff"),
        "Deployment",
        push=_lose_cluster,
        ready=_waits_for_a_node,
    ),
    "suspending": Way(
        {"trainer.config.numRollout": 100, "trainer.config.saveInterval": 1000},
        shows("Suspending"),
        "ConfigMap",
        push=_suspend,
        ready=lambda job: shows("Running")(job) and trained(job) >= 1,
        is_late=True,
    ),
}
"""In the order in which they are reached. `Running`: tests/cluster/test_deletion.py."""

_IN_QUEUE = {"queueName": "trainers", "trainer.allowPartialStart": False, **NOWHERE}

QUEUED_WAYS: Mapping[str, Way] = {
    "restarting-in-place": Way(_IN_QUEUE, _was_restarted, "RayCluster", push=_lose_head, ready=_waits_for_a_node),
    # The one before has taken all that the queue has.
    "queued": Way(_IN_QUEUE, shows("Queued", "TrainerReady", "Queued"), "RayCluster", is_late=True),
}


@dataclass
class Lives:
    """One job for each way, named after the state of the operator in which it is to be deleted."""

    workspace: Workspace
    operator: Operator
    ways: Mapping[str, Way]
    _tried: set[str] = field(default_factory=set)

    def name(self, phase: str) -> str:
        return f"{self.operator}-{phase}"

    def begin(self) -> None:
        for phase, way in self.ways.items():
            if not way.is_late:
                self._apply(phase)

    def come_and_go(self) -> None:
        """A job named `pending` that is deleted as soon as it is made."""
        self.workspace.apply(example("job.yaml", {"agentServer.image": NO_IMAGE}, name=self.name("pending")))
        self.workspace.delete(self.name("pending"))

    def reach(self, phase: str) -> str:
        """Name of the job once it is in its phase; what was tried before is not tried again."""
        if phase not in self._tried:
            self.wait(phase)
            self.push(phase)
        return self.name(phase)

    def reach_all(self) -> None:
        """What does not last comes last. A job that does not get to its phase fails its own test and no other's."""
        good = [phase for phase in self.ways if phase not in self._tried]
        for step in (self.wait, self.push):
            good = [phase for phase in good if _succeeds(step, phase)]
        self._tried.update(self.ways)
        for phase in good:
            if self.ways[phase].is_over:
                self.workspace.until_swept(self.name(phase), timeout=SWEPT_SECONDS)

    def wait(self, phase: str) -> None:
        self._apply(phase)
        way = self.ways[phase]
        self.workspace.until_job(self.name(phase), way.ready or way.there, timeout=SECONDS)

    def push(self, phase: str) -> None:
        self._tried.add(phase)
        way = self.ways[phase]
        if way.push is not None:
            way.push(self.workspace, self.workspace.job(self.name(phase)))
            self.workspace.until_job(self.name(phase), way.there, timeout=60)

    def delete(self, phase: str, *, within: float) -> set[str]:
        """Deletes the job in its phase and awaits that nothing of it is held. Those of its files that went with it."""
        way, name = self.ways[phase], self.reach(phase)
        job = self.workspace.job(name)
        assert way.there(job), f"not {phase}: {brief(job)}"
        held = self.workspace.held(name)
        assert [thing for thing in held if thing.startswith(f"{way.holds} ")], held
        before = self._files(job)
        self.workspace.delete(name)
        self.workspace.until_held(lambda held: not held, name, timeout=within)
        return before - self._files(job)

    def remove(self) -> None:
        for phase in ("pending", *self.ways):
            self.workspace.delete(self.name(phase))

    def _files(self, job: Manifest) -> set[str]:
        """Of the run, and what every run reads; without what is being written at this moment."""
        ours = f"-path './models/*' -o -path './tasks/*' -o -path './*/{job['status']['runPath']}/*'"
        script = f"find . -ignore_readdir_race -type f -not -path '*/.*' \\( {ours} \\)"
        return set(self.workspace.read(script).splitlines())

    def _apply(self, phase: str) -> None:
        self.workspace.apply(example("job.yaml", dict(self.ways[phase].changes), name=self.name(phase)))


def _succeeds(step: Callable[[str], None], phase: str) -> bool:
    try:
        step(phase)
    except AssertionError:
        return False  # `delete` shows where the job is instead
    return True


@contextmanager
def lives(workspace: Workspace, kubectl: Kubectl, operator: Operator, ways: Mapping[str, Way]) -> Iterator[Lives]:
    """With the operator absent every job is in its phase within; with the operator running a test brings it there."""
    jobs = Lives(workspace, operator, ways)
    with ExitStack() as stack:
        stack.callback(jobs.remove)
        if operator == "running":
            # First, so that whatever the operator makes of it too late was made before the last test looks.
            jobs.come_and_go()
            jobs.begin()
        else:
            jobs.begin()
            jobs.reach_all()
            stack.enter_context(operator_scaled_to_zero(kubectl))
            jobs.come_and_go()
        yield jobs
