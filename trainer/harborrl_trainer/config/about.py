"""What is known of a field beside type and default: group, home in a HarborRLJob, what the API server admits.

The class itself takes any value of its type, as documented; bounds hold for `spec.trainer.config` alone.
"""

from dataclasses import dataclass

GROUPS = {
    "image": "Image and source",
    "cluster": "Cluster and placement",
    "arguments": "Raw arguments",
    "algorithm": "Algorithm",
    "optimizer": "Optimizer",
    "batch": "Batches and schedule",
    "precision": "Precision and dropout",
    "memory": "Memory",
    "rollout": "Rollout",
    "checkpoint": "Checkpoints and evaluation",
    "agent": "Agent and environment",
    "tasks": "Tasks and data",
    "model": "Model shape",
}
"""Name -> title, in the order of docs/miles.md."""


@dataclass(frozen=True)
class About:
    """Metadata of one field, put into its annotation."""

    group: str
    home: str = ""
    """Path below `spec` where a HarborRLJob keeps it; empty: `trainer.config`."""
    emitted: bool = True
    """Whether `cli_args()` makes a flag of it."""
    least: float | None = None
    most: float | None = None
    above: float | None = None
    """Exclusive lower bound."""
    below: float | None = None
    """Exclusive upper bound."""
    follows_model: bool = False
    """Unset in a HarborRLJob, the field is left to the model's own configuration."""
