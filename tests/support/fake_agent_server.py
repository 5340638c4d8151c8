"""A small agent server that speaks the real wire: `/run` plays an agent against the session server over HTTP.

It is a test double for Harbor's trials, never for the model: the answers and the rewards come from what is sampled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

Reward = Callable[[str, Sequence[str]], float]
"""(instance id, the model's answers) -> reward."""
Reply = dict[str, Any]


@dataclass
class FakeAgentServer:
    reward: Reward
    system: str = "You are in a shell. Answer with one command."
    observations: Sequence[str] = ()
    """One user message after each answer but the last: as many further turns."""
    capacity: int = 8
    before_trial: Callable[[dict[str, Any]], Awaitable[Reply | None]] | None = None
    """May answer instead of a trial: this is where faults are injected."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    flushed: list[str] = field(default_factory=list)
    in_flight: int = 0
    widest: int = 0

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.post("/run")
        async def run(request: Request) -> JSONResponse:
            body = await request.json()
            self.requests.append(body)
            self.in_flight += 1
            self.widest = max(self.widest, self.in_flight)
            try:
                other = await self.before_trial(body) if self.before_trial else None
                return JSONResponse(other if other is not None else await self.trial(body))
            finally:
                self.in_flight -= 1

        @app.post("/flush")
        async def flush(request: Request) -> dict[str, Any]:
            ids = (await request.json())["session_server_instance_ids"]
            self.flushed += ids
            return {"cancelled": 0, "pending": 0, "ids": ids}

        @app.get("/health")
        async def health() -> dict[str, Any]:
            return {
                "status": "ok",
                "version": "test",
                "capacity": self.capacity,
                "in_flight": self.in_flight,
                "queued": 0,
            }

        return app

    async def trial(self, body: dict[str, Any]) -> Reply:
        messages = [
            {"role": "system", "content": self.system},
            {"role": "user", "content": f"Task: {body['instance_id']}"},
        ]
        answers: list[str] = []
        async with httpx.AsyncClient(timeout=120, trust_env=False) as http:
            for observation in [*self.observations, None]:
                response = await http.post(
                    f"{body['base_url']}/chat/completions",
                    json={"model": "model", "messages": messages, **body["sampling_params"]},
                )
                if response.status_code != 200:
                    return outcome("ModelEndpointFailed", infra_failure=True)
                choice = response.json()["choices"][0]
                answers.append(choice["message"]["content"])
                messages.append(choice["message"])
                if choice["finish_reason"] == "length" or observation is None:
                    break
                messages.append({"role": "user", "content": observation})
                await asyncio.sleep(0)
        reward = self.reward(body["instance_id"], answers)
        return outcome("Submitted", reward=reward, eval_report={"reward": reward}, turns=len(answers))


def outcome(
    exit_status: str,
    *,
    reward: float | None = 0.0,
    eval_report: dict[str, Any] | None = None,
    infra_failure: bool = False,
    turns: int = 0,
) -> Reply:
    return {
        "reward": reward,
        "exit_status": exit_status,
        "eval_report": eval_report or {},
        "agent_metrics": {"turns": turns},
        "trial_name": "fake",
        "infra_failure": infra_failure,
        "exception_type": None,
        "phase_seconds": {"queue": 0.0, "run": 0.1},
        "warnings": [],
    }
