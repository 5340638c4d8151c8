"""A session server that answers every chat with the next line of a fixed script: it samples nothing."""

import json
import os
import re
import threading
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SCRIPT = os.environ.get("MILES_SHAPED_SCRIPT", "```sh\necho hello > /app/greeting.txt\n```\nTASK_DONE").split("|")
"""What the model says, turn by turn, `|` between; the last one again and again."""


@dataclass
class Session:
    messages: list[dict[str, Any]] = field(default_factory=list)
    turns: list[dict[str, Any]] = field(default_factory=list)


class Sessions(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("0.0.0.0", port), _Handler)  # noqa: S104 - agents come from other pods
        self.instance_id = uuid.uuid4().hex
        self.sessions: dict[str, Session] = {}
        threading.Thread(target=self.serve_forever, name=f"session server {port}", daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: Sessions
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # type: ignore[explicit-override]  # noqa: A002 - 3.10 has no override
        """Nobody reads it."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(200, {"status": "ok", "session_server_instance_id": self.server.instance_id})
            return
        session = self._session()
        if session is not None:
            self._answer(200, {"messages": session.messages, "metadata": {}})

    def do_DELETE(self) -> None:
        if self._session() is not None:
            self.server.sessions.pop(self._id())
            self._answer(200, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if self.path == "/sessions":
            id_ = uuid.uuid4().hex[:16]
            self.server.sessions[id_] = Session()
            self._answer(200, {"session_id": id_})
            return
        session = self._session()
        if session is None:
            return
        if self.path.endswith("/samples"):
            self._answer(200, {"turns": session.turns})
        elif body.get("messages", [])[: len(session.messages)] != session.messages:
            self._answer(400, {"error": {"message": "the history is not append-only", "code": "invalid_request"}})
        else:
            self._answer(200, _turn(session, body["messages"]))

    def _id(self) -> str:
        found = re.match(r"/sessions/([0-9a-f]+)", self.path)
        return found[1] if found else ""

    def _session(self) -> Session | None:
        session = self.server.sessions.get(self._id())
        if session is None:
            self._answer(404, {"error": {"message": f"no session {self._id()}", "code": "session_not_found"}})
        return session

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _turn(session: Session, messages: list[dict[str, Any]]) -> dict[str, Any]:
    text = SCRIPT[min(len(session.turns), len(SCRIPT) - 1)]
    new = "".join(str(message.get("content")) for message in messages[len(session.messages) :])
    prompt, ids = list(new.encode()), list(text.encode())
    session.turns.append({"prompt_ids": prompt, "ids": ids, "text": text})
    reply = {"role": "assistant", "content": text}
    session.messages = [*messages, reply]
    return {
        "id": f"chatcmpl-{len(session.turns)}",
        "object": "chat.completion",
        "created": 0,
        "model": "model",
        "choices": [{"index": 0, "message": reply, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)},
    }
