"""The `/run` request of a trial from what Miles' generate hands to an agent function. Pure."""

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from harborrl_trainer.miles.settings import Settings
from harborrl_trainer.rollout.reserved import without_reserved


def session_of(base_url: str) -> str:
    """`http://host:port/sessions/<id>` -> `<id>`, the key under which a trial can exist only once."""
    return urlsplit(base_url).path.rstrip("/").rpartition("/")[2]


def build_request(
    base_url: str, request_kwargs: Mapping[str, Any], metadata: Mapping[str, Any], settings: Settings
) -> dict[str, Any]:
    """Fields as in tests/contract/run_request.json; `deadline_s` is the client's to add.

    What Miles put into the metadata beside the data set's own columns is taken out again and sent in its place.
    """
    request: dict[str, Any] = {
        **without_reserved(metadata),
        "base_url": _reachable(f"{base_url}/v1", settings.external_host),
        "model": f"openai/{settings.model_name}",
        "sampling_params": dict(request_kwargs),
    }
    if settings.agent_name:
        request["agent_name"] = settings.agent_name
    if metadata.get("max_seq_len") is not None:
        request["max_seq_len"] = int(metadata["max_seq_len"])
    if metadata.get("session_server_id") is not None:
        server = _reachable(f"http://{metadata['session_server_id']}", settings.external_host)
        request["session_server_id"] = server.removeprefix("http://")
    if metadata.get("session_server_instance_id") is not None:
        request["session_server_instance_id"] = str(metadata["session_server_instance_id"])
    return request


def _reachable(url: str, host: str) -> str:
    """The same URL under another host name; the port stays."""
    if not host:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{host}:{parts.port}" if parts.port else host))


def plain(value: Any) -> Any:
    """A foreign server's report without what JSON cannot say: NaN and infinities become None.

    The session server of Miles' second version gets the report back as JSON.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
