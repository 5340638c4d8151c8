"""The stand-in of Miles: the job that runs it on a cluster is admitted, and takes the product's argv word by word."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harborrl_operator.checks import first_objection
from harborrl_operator.resolve import ResolvedJob, resolve
from harborrl_operator.resources.ray_cluster import ray_cluster
from harborrl_trainer.job import JobDocument, parse_job
from harborrl_trainer.launch import Start, launch
from support import hrl
from support.miles_job import miles_job
from support.miles_run import FLAGS, SHAPED

PARSE = (
    "from miles.utils.arguments import parse_args; a = parse_args(); print(a.start_rollout_id, a.save_trigger_sentinel)"
)


def resolved() -> ResolvedJob:
    manifest = miles_job("shaped")
    return resolve(hrl.job(base=manifest["spec"], name="shaped"), hrl.SETTINGS)


@pytest.fixture
def job(tmp_path: Path) -> JobDocument:
    document = resolved().document(1)
    for role in document["storage"]:
        (tmp_path / role).mkdir()
    placed = json.loads(json.dumps(document).replace("/mnt/", f"{tmp_path}/"))
    Path(placed["model"]["path"]).mkdir(parents=True)
    return parse_job(json.dumps(placed))


def test_the_operator_admits_the_job_that_the_cluster_test_applies() -> None:
    job = resolved()
    claims = {volume.pvc: hrl.claim(volume.pvc, "ReadWriteOnce") for volume in job.volumes.values()}
    assert first_objection(job, hrl.world(claims=claims)) is None


def test_its_pod_takes_no_gpu() -> None:
    head = ray_cluster(resolved(), 1, {})["spec"]["headGroupSpec"]
    (ray,) = head["template"]["spec"]["containers"]
    assert ray["resources"]["limits"]["nvidia.com/gpu"] == 0
    assert head["rayStartParams"]["num-gpus"] == "1"


def start(folder: Path) -> Start:
    return Start(1, 1, traces=folder / "traces", checkpoints=folder / "checkpoints", files=folder / "files")


def parse(arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SHAPED), "MILES_SHAPED_FLAGS": str(FLAGS)}
    command = [sys.executable, "-c", PARSE, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own text


def test_it_takes_every_word_of_the_products_argv(job: JobDocument, tmp_path: Path) -> None:
    made = launch(job, start(tmp_path))
    done = parse(made.argv[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", str(tmp_path / "checkpoints" / "save-trigger")]


def test_it_knows_the_flags_of_miles_and_no_other(job: JobDocument, tmp_path: Path) -> None:
    made = launch(job, start(tmp_path))
    done = parse((*made.argv[1:], "--no-such-flag"))
    assert done.returncode == 2
    assert "unrecognized arguments: --no-such-flag" in done.stderr
