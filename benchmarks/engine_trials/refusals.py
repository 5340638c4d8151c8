"""What a session of Miles before SGLang says to a turn that it cannot take, word for word."""

from typing import Any

import aiohttp

USER = {"role": "user", "content": "Say one word."}
LONG = {"role": "user", "content": "word " * 6000}


class Asked:
    """Requests to session server and engine, and all that came back."""

    def __init__(self, client: aiohttp.ClientSession, sessions: str, engine: str) -> None:
        self._client = client
        self._sessions = sessions
        self._engine = engine
        self.exchanges: list[dict[str, Any]] = []

    async def session(self) -> str:
        async with self._client.post(f"{self._sessions}/sessions") as answer:
            return str((await answer.json())["session_id"])

    async def turn(self, name: str, session: str | None, **body: Any) -> dict[str, Any]:
        """One turn of a session, or of the engine itself."""
        base = self._engine if session is None else f"{self._sessions}/sessions/{session}"
        body = {"model": "policy", **body}
        async with self._client.post(f"{base}/v1/chat/completions", json=body) as answer:
            text = await answer.text()
            kept = {"name": name, "by": "SGLang" if session is None else "Miles before SGLang", "status": answer.status}
            self.exchanges.append({**kept, "content_type": answer.content_type, "body": text[:4000]})
            found: dict[str, Any] = await answer.json(content_type=None) if answer.status == 200 else {}
            return found


async def collected(client: aiohttp.ClientSession, sessions: str, engine: str) -> list[dict[str, Any]]:
    asked = Asked(client, sessions, engine)
    for direct in (True, False):
        new = none if direct else asked.session
        await asked.turn("prompt longer than the context", await new(), messages=[LONG], max_tokens=8)
        await asked.turn("prompt and reply longer than the context", await new(), messages=[USER], max_tokens=50_000)
        await asked.turn("temperature below zero", await new(), messages=[USER], temperature=-1, max_tokens=8)
        await asked.turn("no such parameter value", await new(), messages=[USER], top_p="x", max_tokens=8)
        await asked.turn("no messages", await new(), messages=[], max_tokens=8)
        await asked.turn("cut by length", await new(), messages=[USER], max_tokens=1, ignore_eos=True)
    await asked.turn("no such session", "none", messages=[USER], max_tokens=8)
    await of_one_history(asked)
    return asked.exchanges


async def none() -> None:
    return None


async def of_one_history(asked: Asked) -> None:
    session = await asked.session()
    first = await asked.turn("a first turn", session, messages=[USER], max_tokens=4)
    said = first["choices"][0]["message"]
    more = {"role": "user", "content": "And another."}
    await asked.turn("a history that grows", session, messages=[USER, said, more], max_tokens=8)
    changed = {**said, "content": "something else"}
    await asked.turn("a history that was changed", session, messages=[USER, changed, more, said, more], max_tokens=8)
    await asked.turn("a history of another session", session, messages=[more], max_tokens=8)
