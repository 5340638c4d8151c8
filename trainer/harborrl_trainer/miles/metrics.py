"""Means over what agents report in `agent_metrics`. Pure. An agent that omits a key does not pull its mean to zero."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

SUMMED = ("turns", "tool_calls")
MEANS = {
    "model_query_time_sum": "model_query_time_sum_mean",
    "env_execution_time_sum": "env_execution_time_sum_mean",
    "eval_time": "eval_time_mean",
    "agent_run_time": "agent_run_time_mean",
    "time_per_turn": "time_per_turn",
    "model_query_time_avg": "model_query_time_avg",
    "env_execution_time_avg": "env_execution_time_avg",
    "model_time_ratio": "model_time_ratio",
    "env_time_ratio": "env_time_ratio",
    "eval_time_ratio": "eval_time_ratio",
    "total_time": "total_time_mean",
}
"""Reported key -> name of its mean."""


def aggregate(reports: Iterable[Any]) -> dict[str, float]:
    """`agent/...` metrics of all reports that are mappings; keys nobody reported stay out."""
    known = [report for report in reports if isinstance(report, Mapping)]
    metrics = {}
    for key, name in {**{key: f"{key}_mean" for key in SUMMED}, **MEANS}.items():
        if values := _values(known, key):
            metrics[f"agent/{name}"] = sum(values) / len(values)
    for key in SUMMED:
        if values := _values(known, key):
            metrics[f"agent/{key}_sum"] = sum(values)
    if values := _values(known, "total_time"):
        metrics |= {"agent/total_time_max": max(values), "agent/total_time_min": min(values)}
    return metrics


def _values(reports: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    found = [report.get(key) for report in reports]
    numbers = [value for value in found if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return [float(value) for value in numbers if isfinite(value)]
