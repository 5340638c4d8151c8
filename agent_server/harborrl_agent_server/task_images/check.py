"""`images check`: whether the registry has every image, one line a problem."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from harborrl_agent_server.sandboxes.references import BadReferenceError, Reference, parsed
from harborrl_agent_server.task_images.listing import Wanted
from harborrl_agent_server.task_images.registry import Answer, Registries, State

AT_ONCE = 16

LOCAL = "localhost"


@dataclass(frozen=True)
class Finding:
    image: str
    tasks: tuple[str, ...]
    state: str
    """A `State`'s value, `unresolved` (no image, or no reference), or `local` (only nodes can tell)."""
    digest: str = ""
    said: str = ""

    @property
    def fine(self) -> bool:
        return self.state in {State.FOUND.value, "local"}

    def line(self) -> str:
        whose = self.tasks[0] + (f" and {len(self.tasks) - 1} more" if len(self.tasks) > 1 else "")
        text = f"{self.state}: {self.image or '-'} of {whose}"
        if self.said:
            text += f": {self.said}"
        return f"{text}; {REMEDIES[self.state]}" if self.state in REMEDIES else text


REMEDIES = {
    State.MISSING.value: "push it (images build --push), or correct docker_image, images.map or images.template",
    State.UNAUTHORISED.value: "log in (docker login) with an account that may pull it; some registries say so of names"
    " that do not exist; sandboxes need agentServer.sandbox.images.pullSecrets besides",
    State.UNREACHABLE.value: "check the registry's address, the proxy and its certificate; --insecure-registry HOST for"
    " one without TLS",
}


async def check(found: Sequence[Wanted], registries: Registries) -> list[Finding]:
    """One finding an image, in the order of the tasks."""
    by_image: dict[tuple[str, str], list[str]] = {}
    for want in found:
        by_image.setdefault((want.image, want.problem), []).append(want.task)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(image: str, problem: str, tasks: list[str]) -> Finding:
        whose = tuple(dict.fromkeys(tasks))
        if problem:
            return Finding(image, whose, "unresolved", said=problem)
        try:
            reference = parsed(image)
        except BadReferenceError as error:
            return Finding(
                image, whose, "unresolved", said=f"{error}; correct docker_image, images.map or images.template"
            )
        if without_registry(reference):
            return Finding(image, whose, "local", said="loaded on the nodes, or not at all")
        async with gate:
            answer = await registries.look(reference)
        return of_answer(image, whose, answer)

    return list(await asyncio.gather(*(one(*key, tasks) for key, tasks in by_image.items())))


def without_registry(reference: Reference) -> bool:
    """`localhost/name` without a port is what local builds are called; no registry listens there."""
    return reference.host == LOCAL


def of_answer(image: str, tasks: tuple[str, ...], answer: Answer) -> Finding:
    return Finding(image, tasks, answer.state.value, answer.digest, answer.said)
