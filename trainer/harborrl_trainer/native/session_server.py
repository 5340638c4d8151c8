"""The session server (docs/contracts.md): an OpenAI-shaped chat endpoint for each trajectory. Tokens in, tokens out."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, field_validator

from harborrl_trainer.native.chat import ChatRenderer, TemplateNotAppendOnly
from harborrl_trainer.native.sampling import SamplingParams
from harborrl_trainer.native.session import Generation, Session, SessionClosed, SessionError

Generate = Callable[[str, list[int], SamplingParams], Awaitable[Generation]]
"""(request id, prompt ids, parameters) -> what was sampled."""


class TextPart(BaseModel):
    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    model_config = ConfigDict(extra="allow")
    role: str
    content: str

    @field_validator("content", mode="before")
    @classmethod
    def _joined(cls, content: Any) -> Any:
        """Some clients send text as a list of parts; the template, and a replayed history, know one string."""
        if isinstance(content, list):
            return "".join(TextPart.model_validate(part).text for part in content)
        return content


class ChatRequest(BaseModel):
    """The fields that mean something here; clients send many others, which are ignored.

    Not `tools`, `n` > 1 and `stop`: they would change what is sampled, so they are refused.
    """

    model_config = ConfigDict(extra="allow")
    messages: list[ChatMessage]
    temperature: Annotated[float, Field(gt=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    max_completion_tokens: Annotated[int | None, Field(ge=1)] = None
    seed: int | None = None
    n: Annotated[int, Field(ge=1, le=1)] = 1
    tools: None = None
    stop: None = None
    stream: Literal[False] = False


class SessionStore:
    """All live sessions of one driver, and the lock of each: two calls of one session never interleave."""

    def __init__(self, *, renderer: ChatRenderer, generate: Generate, max_seq_len: int, max_response: int) -> None:
        self.instance_id = uuid.uuid4().hex
        self._renderer = renderer
        self._generate = generate
        self._max_seq_len = max_seq_len
        self._max_response = max_response
        self._sessions: dict[str, Session] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def open(self) -> Session:
        session = Session(id=uuid.uuid4().hex[:16], max_tokens=self._max_seq_len)
        self._sessions[session.id] = session
        self._locks[session.id] = asyncio.Lock()
        return session

    def get(self, session_id: str) -> Session | None:
        return self._sessions.get(session_id)

    def close(self, session_id: str) -> Session | None:
        """From here on the session answers 404, so that a late agent cannot add to a trajectory already taken."""
        self._locks.pop(session_id, None)
        return self._sessions.pop(session_id, None)

    def text(self, token_ids: Sequence[int]) -> str:
        return self._renderer.text(token_ids)

    async def chat(self, session: Session, request: ChatRequest) -> dict[str, Any]:
        """One turn. Raises a SessionError for what the client did wrong; the session is then as it was before."""
        # Clients add keys with null in them (`tool_calls`, `refusal`); a replayed message is the same without.
        messages = [message.model_dump(exclude_none=True) for message in request.messages]
        lock = self._locks.get(session.id)
        if lock is None:
            raise SessionClosed(f"no session {session.id}")
        async with lock:
            if session.id not in self._sessions:
                raise SessionClosed(f"session {session.id} was closed")
            if not session.answered_before(messages):
                prompt = session.next_prompt(messages, self._renderer)
                request_id = f"{session.id}-{len(session.turns)}"
                answer = await self._generate(request_id, prompt, self._parameters(request, session, prompt))
                session.record(messages, prompt, answer, self._renderer.text(answer.token_ids))
            return _completion(session)

    def _parameters(self, request: ChatRequest, session: Session, prompt: list[int]) -> SamplingParams:
        wanted = request.max_completion_tokens or request.max_tokens or self._max_response
        return SamplingParams(
            temperature=request.temperature,
            top_p=request.top_p,
            max_tokens=min(wanted, session.room(prompt)),
            seed=request.seed,
        )


def build_app(store: SessionStore) -> FastAPI:  # noqa: C901 - five routes, each a few lines
    app = FastAPI(title="HarborRL session server", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok", "session_server_instance_id": store.instance_id}

    @app.post("/sessions")
    async def open_session() -> dict[str, str]:
        return {"session_id": store.open().id}

    @app.get("/sessions/{session_id}")
    async def show_session(session_id: str) -> JSONResponse:
        session = store.get(session_id)
        if session is None:
            return _error(404, "session_not_found", f"no session {session_id}")
        metadata = {"accumulated_token_ids": session.token_ids, "turns": len(session.turns)}
        return JSONResponse({"session_id": session.id, "messages": session.messages, "metadata": metadata})

    @app.delete("/sessions/{session_id}")
    async def close_session(session_id: str) -> JSONResponse:
        if store.close(session_id) is None:
            return _error(404, "session_not_found", f"no session {session_id}")
        return JSONResponse({"session_id": session_id})

    @app.post("/sessions/{session_id}/v1/chat/completions")
    async def chat(session_id: str, request: Request) -> JSONResponse:
        session = store.get(session_id)
        if session is None:
            return _error(404, "session_not_found", f"no session {session_id}")
        try:
            parsed = ChatRequest.model_validate_json(await request.body())
            return JSONResponse(await store.chat(session, parsed))
        except SessionError as error:
            return _error(error.status, error.code, str(error))
        except ValueError as error:
            code = "template_not_append_only" if isinstance(error, TemplateNotAppendOnly) else "invalid_request"
            return _error(400, code, str(error))

    return app


def _completion(session: Session) -> dict[str, Any]:
    turn = session.turns[-1]
    return {
        "id": f"chatcmpl-{session.id}-{len(session.turns) - 1}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": "model",
        "choices": [
            {"index": 0, "message": dict(session.messages[-1]), "finish_reason": turn.finish_reason, "logprobs": None}
        ],
        "usage": {
            "prompt_tokens": turn.start,
            "completion_tokens": len(turn.sampled),
            "total_tokens": turn.start + len(turn.sampled),
        },
        "weight_version": turn.weight_version,
    }


def _error(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error", "code": code}}, status)
