"""Many trials at once as a trainer asks for them: a session of Miles each, and its samples afterwards."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import aiohttp

FREE_SECONDS = 30.0


class Rollouts:
    def __init__(self, client: aiohttp.ClientSession, server: str, sessions: str, engine: str) -> None:
        self.client = client
        self._server = server
        self._sessions = sessions
        self._engine = engine

    async def of(self, trials: int, task: str, sampling: Mapping[str, Any], **extra: Any) -> dict[str, Any]:
        """How they end, what of their sampling parameters Miles recorded, and what samples it makes of them."""
        done = await asyncio.gather(*(self._trial(task, sampling, extra) for _ in range(trials)))
        answers = [answer for answer, _, _ in done]
        return {
            "trials": trials,
            "exit_status": counted(answer["exit_status"] for answer in answers),
            "infrastructure": sum(bool(answer["infra_failure"]) for answer in answers),
            "messages": counted(worded(answer) for answer in answers if answer.get("message")),
            "warnings": counted(warning for answer in answers for warning in answer.get("warnings", ())),
            "turns": counted(answer["agent_metrics"].get("turns") for answer in answers),
            "total_tokens_at_most": max(answer["agent_metrics"].get("total_tokens", 0) for answer in answers),
            "completion_tokens": sum(answer["agent_metrics"].get("completion_tokens", 0) for answer in answers),
            "reward_1": sum(answer["reward"] == 1.0 for answer in answers),
            "sampling_recorded_as_asked": sum(recorded for _, recorded, _ in done),
            "samples": counted(samples for _, _, samples in done),
        }

    async def _trial(
        self, task: str, sampling: Mapping[str, Any], extra: Mapping[str, Any]
    ) -> tuple[dict[str, Any], bool, str]:
        session = await self._new_session()
        answer = await self._run(task, f"{self._sessions}/sessions/{session}/v1", sampling, extra)
        async with self.client.get(f"{self._sessions}/sessions/{session}") as kept:
            records = (await kept.json())["records"]
        recorded = all(record["request"].get(key) == value for record in records for key, value in sampling.items())
        async with self.client.post(f"{self._sessions}/sessions/{session}/samples", json={}) as made:
            content = await made.read()
            samples = "made" if made.status == 200 and records else f"{made.status} {content[:200]!r}"
        async with self.client.delete(f"{self._sessions}/sessions/{session}"):
            pass
        return answer, recorded, samples

    async def _new_session(self) -> str:
        async with self.client.post(f"{self._sessions}/sessions") as made:
            return str((await made.json())["session_id"])

    async def _run(
        self, task: str, base_url: str, sampling: Mapping[str, Any], extra: Mapping[str, Any]
    ) -> dict[str, Any]:
        body = {"instance_id": task, "base_url": base_url, "agent_name": "bash", "sampling_params": dict(sampling)}
        async with self.client.post(f"{self._server}/run", json={**body, **extra}) as ran:
            answer: dict[str, Any] = await ran.json()
            return answer

    async def flushed(self, trials: int, sampling: Mapping[str, Any], *, through_sessions: bool) -> dict[str, Any]:
        """How long /flush takes while all of them generate, and when the engine works on none of them any more."""
        asking = await self._generating(trials, sampling, through_sessions=through_sessions)
        begun = time.monotonic()
        async with self.client.post(f"{self._server}/flush", json={"session_server_instance_id": "to-flush"}) as said:
            cancelled = (await said.json())["cancelled"]
        flushed = time.monotonic()
        answers = await asyncio.gather(*asking)
        answered = time.monotonic()
        free = await self._until(0, begun)
        return {
            "trials": trials,
            "cancelled": cancelled,
            "exit_status": counted(answer["exit_status"] for answer in answers),
            "flush_answered_after_s": round(flushed - begun, 3),
            "trials_answered_after_s": round(answered - begun, 3),
            "engine_free_after_s": free,
        }

    async def aborted(self, trials: int, sampling: Mapping[str, Any]) -> dict[str, Any]:
        """The engine breaks all generations off, as Miles does when enough groups are there."""
        asking = await self._generating(trials, sampling, through_sessions=True)
        async with self.client.post(f"{self._engine}/abort_request", json={"abort_all": True, "rid": ""}) as said:
            status = said.status
        answers = await asyncio.gather(*asking)
        return {
            "abort_request": status,
            "exit_status": counted(answer["exit_status"] for answer in answers),
            "messages": counted(worded(answer) for answer in answers if answer.get("message")),
        }

    async def _generating(
        self, trials: int, sampling: Mapping[str, Any], *, through_sessions: bool
    ) -> list[asyncio.Task[dict[str, Any]]]:
        extra = {"session_server_instance_id": "to-flush"}
        asking = []
        for _ in range(trials):
            base = f"{self._sessions}/sessions/{await self._new_session()}" if through_sessions else self._engine
            asking.append(asyncio.create_task(self._run("greeting", f"{base}/v1", sampling, extra)))
        await self._until(trials, time.monotonic())
        return asking

    async def _until(self, wanted: int, begun: float) -> float | None:
        """Seconds until the engine works on so many requests; None where it did not come to that."""
        while (passed := time.monotonic() - begun) < FREE_SECONDS:
            if await self._running() == wanted:
                return round(passed, 3)
            await asyncio.sleep(0.02)
        return None

    async def _running(self) -> int:
        async with self.client.get(f"{self._engine}/v1/loads") as said:
            loads = (await said.json())["loads"]
        return sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in loads)


def worded(answer: Mapping[str, Any]) -> str:
    """Its message, the same for all trials."""
    return re.sub(r"/sessions/[0-9a-f]+/", "/sessions/.../", answer["message"])[:400]


def counted(things: Any) -> dict[str, int]:
    return {str(thing): number for thing, number in Counter(things).most_common(20)}
