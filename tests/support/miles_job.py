"""The job of the cluster test for `engine: miles`: the quickstart's, with the stand-in of Miles as trainer image."""

from typing import Any

from support.kube import Manifest
from support.workspace import example

IMAGE = "localhost/harborrl/miles-shaped:dev"
ROLLOUTS = 8
NO_GPU = {"requests": {"nvidia.com/gpu": 0}, "limits": {"nvidia.com/gpu": 0}}
"""Miles is admitted with GPUs alone. Ray is told of one that the stand-in does not touch and the pod does not take."""
CHANGES: dict[str, Any] = {
    "data": {"jsonl": "eval.jsonl"},
    "model.type": "qwen2.5-0.5B",
    "trainer.engine": "miles",
    "trainer.image": IMAGE,
    "trainer.nodes": 1,
    "trainer.gpusPerNode": 1,
    "trainer.podOverrides": {"containers": [{"name": "ray-head", "resources": NO_GPU}]},
    "trainer.config.numRollout": ROLLOUTS,
    "trainer.config.saveInterval": 2,
    "trainer.config.milesSrcCommit": "31f1ca961a94cb860cec3b2dea34ec332bfa8f76",
    "trainer.env": [{"name": "MILES_SHAPED_STEP_SECONDS", "value": "4"}],
}


def miles_job(name: str) -> Manifest:
    return example("job.yaml", CHANGES, name=name)
