"""The learning curve as a picture."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from demo.report import Evaluation, Line


def draw(trained: list[Line], before: Evaluation | None, after: Evaluation | None, path: Path) -> None:
    """Reward of each step with its standard error, and the evaluations before the first and after the last step."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.errorbar(
        [step["rollout_id"] + 0.5 for step in trained],
        [step["reward_mean"] for step in trained],
        yerr=[step["reward_stderr"] for step in trained],
        marker="o",
        capsize=2,
        linewidth=1,
        label="rollouts (mean ± standard error)",
    )
    ends = [(0, before), (len(trained), after)]
    for place, evaluation in ends:
        if evaluation is not None:
            axes.errorbar(
                place, evaluation.mean, yerr=2 * evaluation.error, marker="s", markersize=8, color="black", capsize=4
            )
    axes.plot([], [], marker="s", color="black", linestyle="", label="evaluation (mean ± 2 standard errors)")
    axes.set(
        xlabel="GRPO steps", ylabel="verifier reward", ylim=(0, 1.02), title="SmolLM2-135M on the quickstart tasks"
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
