"""An agent function in a few lines: two turns with Miles' session server (or the stand-in's), a reward of its own."""

from typing import Any

import httpx


async def run(base_url: str, prompt: Any, request_kwargs: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    messages = [{"role": "user", "content": str(prompt)}]
    async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
        for _ in range(2):
            answer = await client.post(f"{base_url}/v1/chat/completions", json={"messages": messages, **request_kwargs})
            answer.raise_for_status()
            messages += [answer.json()["choices"][0]["message"], {"role": "user", "content": "go on"}]
        forged = await client.post(f"{base_url}/v1/chat/completions", json={"messages": messages[1:]})
    return {"reward": 0.5 if forged.status_code == 400 else 0.0, "instance": metadata["instance_id"]}


async def reward(_args: Any, sample: Any) -> float:
    return float(sample.metadata["reward"])
