"""A session server with the wire of Miles 9a00364: it records each model call, and the driver makes samples of them.

Tokens are bytes: a prompt is the rendered messages, an answer its text and a stop token. `FakeTemplate` is that
rendering with the names that Miles' own session server (31f1ca961) calls.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from support.raw_http import Answer, Asked, serving

STOP = 0
GENERATE = 1
MESSAGE = 2


class FakeTemplate:
    allowed_append_roles = ("user", "tool", "system")
    max_trim_tokens = 0
    chat_template_kwargs: dict[str, Any] = {}  # noqa: RUF012 - as Miles names it, and never written

    def apply_chat_template(self, messages: Sequence[dict[str, Any]], **options: Any) -> list[int]:
        ids = [token for message in messages for token in (MESSAGE, *message["content"].encode())]
        return [*ids, GENERATE] if options.get("add_generation_prompt") else ids

    def merge_tokens(
        self,
        *,
        old_messages: Sequence[Any],
        new_messages: Sequence[Any],
        pretokenized_token_ids: Sequence[int],
        tools: Any = None,  # noqa: ARG002 - Miles' signature
    ) -> list[int]:
        added = self.apply_chat_template(new_messages[len(old_messages) :], add_generation_prompt=True)
        return [*pretokenized_token_ids, *added]

    def create_comparator(self) -> Any:
        return type("Comparator", (), {"compare_sequences": staticmethod(lambda *_: [])})()

    def decode(self, token_ids: Sequence[int], **_: Any) -> str:
        return bytes(token for token in token_ids if token > MESSAGE).decode()


def completion(prompt: Sequence[int], messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What an inference engine answers; the last message says how it ends: `say stop`, `say length`, `say abort`."""
    ending = str(messages[-1]["content"]).rpartition(" ")[2]
    text = f"answer {len(messages)}"
    output = [*text.encode(), STOP] if ending == "stop" else list(text.encode())
    logprobs = [[-0.5, token, None] for token in output]
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "model",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": ending,
                "prompt_token_ids": list(prompt),
                "meta_info": {
                    "output_token_logprobs": logprobs,
                    "completion_tokens": len(output),
                    "prompt_tokens": len(prompt),
                    "weight_version": "3",
                },
            }
        ],
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(output)},
    }


@dataclass
class Session:
    token_ids: list[int] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class RecordingSessions:
    instance: str = "sessions-a"
    opened: int = 0
    live: dict[str, Session] = field(default_factory=dict)
    broken: str = ""
    """`open`, `collect`: answers 500 to that; `open-hangs`, `collect-hangs`: never answers it."""
    template: FakeTemplate = field(default_factory=FakeTemplate)

    async def handle(self, asked: Asked) -> Answer | None:
        parts = asked.path.strip("/").split("/")
        if self._hangs(asked.method, parts):
            await asked.gone.wait()
            return None
        if parts == ["health"]:
            return Answer.of({"status": "ok", "session_server_instance_id": self.instance})
        return self._open() if parts == ["sessions"] else self._of_session(asked, parts)

    def _of_session(self, asked: Asked, parts: list[str]) -> Answer:
        session = self.live.get(parts[1])
        if session is None:
            return Answer.of({"error": "session not found"}, status=404)
        if asked.method == "DELETE":
            del self.live[parts[1]]
            return Answer(204, b"")
        if asked.method == "GET":
            return self._records(parts[1], session)
        return self._chat(session, asked.body["messages"])

    def _hangs(self, method: str, parts: list[str]) -> bool:
        return self.broken == ("open-hangs" if parts == ["sessions"] else "collect-hangs" if method == "GET" else "-")

    def _open(self) -> Answer:
        if self.broken == "open":
            return Answer.of({"error": "no"}, status=500)
        self.opened += 1
        name = f"s{self.opened}"
        self.live[name] = Session()
        return Answer.of({"session_id": name})

    def _records(self, name: str, session: Session) -> Answer:
        if self.broken == "collect":
            return Answer.of({"error": "assembly"}, status=500)
        metadata = {"accumulated_token_ids": session.token_ids, "max_trim_tokens": 0}
        return Answer.of({"session_id": name, "records": session.records, "metadata": metadata})

    def _chat(self, session: Session, messages: list[dict[str, Any]]) -> Answer:
        prompt = self.template.merge_tokens(
            old_messages=session.messages, new_messages=messages, pretokenized_token_ids=session.token_ids
        )
        response = completion(prompt, messages)
        choice = response["choices"][0]
        session.token_ids = [*prompt, *(token for _, token, _ in choice["meta_info"]["output_token_logprobs"])]
        session.messages = [*messages, choice["message"]]
        session.records.append(
            {
                "timestamp": 0.0,
                "method": "POST",
                "path": "/v1/chat/completions",
                "status_code": 200,
                "request": {"messages": messages},
                "response": response,
            }
        )
        return Answer(200, json.dumps(response).encode())


@dataclass(frozen=True)
class Running:
    server: RecordingSessions
    port: int

    @property
    def instance(self) -> str:
        return self.server.instance

    @property
    def template(self) -> FakeTemplate:
        return self.server.template

    def opened(self) -> int:
        return self.server.opened


@asynccontextmanager
async def recording_sessions() -> AsyncIterator[Running]:
    server = RecordingSessions()
    async with serving(server.handle) as port:
        yield Running(server, port)
