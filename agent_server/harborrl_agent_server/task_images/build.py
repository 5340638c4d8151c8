"""`images build`: every task's Dockerfile under its content's name, what is there already left out."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harborrl_agent_server.bounded import finish
from harborrl_agent_server.sandboxes.references import BadReferenceError, Reference, parsed
from harborrl_agent_server.task_images.builders import Builder
from harborrl_agent_server.task_images.check import without_registry
from harborrl_agent_server.task_images.listing import Wanted
from harborrl_agent_server.task_images.registry import Answer, Registries, State

STOP_SECONDS = 10


@dataclass(frozen=True)
class Done:
    task: str
    image: str
    state: str
    """`built`, `there` (in the registry already), `named` (nothing to build), `failed`."""
    seconds: float = 0.0
    digest: str = ""
    said: str = ""

    def line(self) -> str:
        spent = f" in {self.seconds:.0f} s" if self.seconds else ""
        words = [f"{self.state}: {self.task} {self.image}{spent}", self.digest, self.said]
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Plan:
    builder: Builder
    registries: Registries
    push: bool
    insecure: frozenset[str]
    at_once: int
    logs: Path


async def build(found: Sequence[Wanted], plan: Plan, tell: Callable[[Done], None]) -> list[Done]:
    """One result a sandbox, told as it comes; a failure stops no other build."""
    gate = asyncio.Semaphore(plan.at_once)
    begun: dict[str, asyncio.Task[Done]] = {}

    async def one(want: Wanted) -> Done:
        async with gate:
            return await _build(want, plan)

    async def told(want: Wanted) -> Done:
        if want.problem or want.named:
            done = Done(want.task, want.image, "failed" if want.problem else "named", said=want.problem)
        else:
            # Tasks with the same content under the same name are one image.
            if want.image not in begun:
                begun[want.image] = asyncio.ensure_future(one(want))
            done = await begun[want.image]
        tell(done)
        return done

    return list(await asyncio.gather(*(told(want) for want in found)))


async def _build(want: Wanted, plan: Plan) -> Done:
    try:
        reference = parsed(want.image)
    except BadReferenceError as error:
        return Done(want.task, want.image, "failed", said=f"no image can be called so: {error}; change --template")
    if not want.buildable:
        said = f"{want.folder} has no Dockerfile; add one, or name a docker_image in task.toml"
        return Done(want.task, want.image, "failed", said=said)
    before = await _asked(reference, plan)
    if before.state is State.FOUND:
        return Done(want.task, want.image, "there", digest=before.digest)
    if plan.push and before.state is not State.MISSING and before.state is not State.UNAUTHORISED:
        return Done(want.task, want.image, "failed", said=f"{before.state.value}: {before.said}; check the registry")
    insecure = reference.is_local or reference.host in plan.insecure
    started = time.monotonic()
    for command in plan.builder.commands(want.image, want.folder, push=plan.push, insecure=insecure):
        failure = await run(command, plan.logs / f"{want.task}.log")
        if failure is not None:
            return Done(want.task, want.image, "failed", time.monotonic() - started, said=failure)
    digest = (await _asked(reference, plan)).digest if plan.push else ""
    return Done(want.task, want.image, "built", time.monotonic() - started, digest)


async def _asked(reference: Reference, plan: Plan) -> Answer:
    """Without a registry to push to, none has to answer."""
    if without_registry(reference):
        return Answer(State.MISSING)
    return await plan.registries.look(reference)


async def run(command: Sequence[str], log: Path) -> str | None:
    """None when the program succeeded, else its last words and where the others are."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output
            )
        except OSError as error:
            return f"{command[0]} does not start: {error.strerror}; install it or choose another --builder"
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await finish(process.wait(), STOP_SECONDS)
    if code == 0:
        return None
    return f"{command[0]} ended with {code}: {last_words(log)}; all of it in {log}"


def last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "it said nothing")
