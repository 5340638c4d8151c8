"""Keys of a sample's metadata that belong to a trial or to its session, and that a data set must not bring."""

from collections.abc import Mapping
from typing import Any

VERDICT = "harborrl"
"""Where the verdict on a trial stands in its sample's metadata."""

RESULT_KEYS = frozenset({"reward", "exit_status", "eval_report", "agent_metrics", VERDICT})
"""What the agent server answers. Left in, a data set's `reward` would be read as that of a trial that never ran."""

REQUEST_KEYS = frozenset(
    {
        "base_url",
        "model",
        "sampling_params",
        "max_seq_len",
        "session_server_id",
        "session_server_instance_id",
        "deadline_s",
    }
)
"""What a `/run` request says about its session, and no data set can know."""

TRAINER_KEYS = frozenset(
    {
        "raw_reward",
        "round_number",
        "start_rollout_id",
        "lifecycle",
        "messages",
        "accumulated_token_ids",
        "max_trim_tokens",
        "tito_session_mismatch",
        "opd_student_top_logprobs",
    }
)
"""What Miles itself keeps in the metadata: it trains on `raw_reward`, for one, wherever it finds it."""

RESERVED = RESULT_KEYS | REQUEST_KEYS | TRAINER_KEYS


def without_reserved(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key not in RESERVED}
