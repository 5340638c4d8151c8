"""What Miles' generate made of a session, read from its samples, and the verdict written back onto them.

Samples are Miles' own objects: nothing but their documented fields is touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harborrl_trainer.miles.request import plain
from harborrl_trainer.rollout.outcomes import TrialReply, Verdict
from harborrl_trainer.rollout.reserved import VERDICT


@dataclass(frozen=True)
class Facts:
    turns: int = 0
    """Model calls in the samples; 0 where nothing was sampled, or nothing was handed over."""
    aborted: bool = False
    """The inference engine gave a generation up, which arrives as an ordinary answer."""
    truncated: bool = False
    prompt_tokens: int = 0
    response_tokens: int = 0
    """Those that the model sampled."""
    weight_version: int = 0
    """Of the oldest turn."""


def facts_of(samples: Sequence[Any], max_seq_len: "int | None", exit_status: str) -> Facts:
    """Several samples of one trial (Miles' session server v2) are taken together."""
    sampled = [sample for sample in samples if sample.tokens]
    if not sampled:
        return Facts()
    states = {sample.status.value for sample in sampled}
    missing = [sample for sample in sampled if _misses_its_end(sample)]
    by_length = [sample for sample in missing if _too_long(sample, max_seq_len, exit_status)]
    return Facts(
        turns=sum(_turns(sample) for sample in sampled),
        aborted=bool(states - {"completed", "truncated"}) or len(missing) > len(by_length),
        truncated="truncated" in states or bool(by_length),
        prompt_tokens=sum(len(sample.tokens) - sample.response_length for sample in sampled),
        response_tokens=sum(_learned(sample) for sample in sampled),
        weight_version=min((_oldest(sample) for sample in sampled), default=0),
    )


def _misses_its_end(sample: Any) -> bool:
    """The session went on after this sample's last token.

    Miles stops merging turns before one without routing-replay payload, which an aborted generation has not, and leaves
    the sample `completed`; and it drops a turn that does not fit `max_seq_len` at all, and leaves it the same.
    """
    whole = (sample.metadata or {}).get("accumulated_token_ids")
    return isinstance(whole, list) and len(sample.tokens) < len(whole)


def _too_long(sample: Any, max_seq_len: "int | None", exit_status: str) -> bool:
    too_long = max_seq_len is not None and len(sample.metadata["accumulated_token_ids"]) > max_seq_len
    return too_long or exit_status == "SequenceLengthLimitExceeded"


def _turns(sample: Any) -> int:
    lifecycle = (sample.metadata or {}).get("lifecycle")
    return max(len(sample.weight_versions or ()), len(lifecycle) if isinstance(lifecycle, list) else 0, 1)


def _learned(sample: Any) -> int:
    return sum(sample.loss_mask) if sample.loss_mask is not None else sample.response_length


def _oldest(sample: Any) -> int:
    return min((int(version) for version in sample.weight_versions or () if str(version).isdigit()), default=0)


def apply(verdict: Verdict, samples: Sequence[Any], reply: "TrialReply | None", session: str) -> None:
    """Writes status, reward and cause. An aborted sample has no reward, and is masked should nobody drop it."""
    for sample in samples:
        sample.status = sample.Status[verdict.status.upper()]
        sample.metadata = {**(sample.metadata or {}), **result_metadata(verdict, reply, session)}
        if verdict.status == "aborted":
            sample.reward = None
            sample.remove_sample = True
        elif sample.reward is not None:  # only the second session server assigns it, from the same reply
            sample.reward = verdict.reward


def result_metadata(verdict: Verdict, reply: "TrialReply | None", session: str) -> dict[str, Any]:
    """What an agent function returns for its sample's metadata: always all keys, so that none of a data set survives.

    `reward` is None unless the verdict is a number.
    """
    metrics = plain(reply.agent_metrics) if reply else {}
    if "total_tool_time" not in metrics and _number(metrics.get("env_execution_time_sum")):
        metrics["total_tool_time"] = metrics["env_execution_time_sum"]  # Miles takes it out of its throughput
    if not _number(metrics.get("total_tool_time", 0.0)):
        del metrics["total_tool_time"]
    return {
        "reward": verdict.reward,
        "exit_status": verdict.outcome,
        "eval_report": plain(reply.eval_report) if reply else {},
        "agent_metrics": metrics,
        VERDICT: {
            "status": verdict.status,
            "reward": verdict.reward,
            "cause": verdict.cause,
            "session": session,
        },
    }


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def verdict_reward(metadata: "Mapping[str, Any] | None") -> "float | None":
    """The trial's reward, from where only a verdict is written; None without one."""
    verdict = (metadata or {}).get(VERDICT)
    reward = verdict.get("reward") if isinstance(verdict, Mapping) else None
    return float(reward) if isinstance(reward, (int, float)) and not isinstance(reward, bool) else None
