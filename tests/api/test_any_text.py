"""Whatever is written in a field, or said by a child, arrives at the API server as it was written."""

import pytest

from harborrl_operator.cluster import Cluster
from harborrl_operator.reconcile import Reconciler
from support import hrl
from support.simulated_life import JOB, Life, pass_preflight, serve, start_head

pytestmark = pytest.mark.api

TEXTS = {
    "of every control character": "".join(map(chr, (*range(32), *range(0x7F, 0xA0)))),
    "of what YAML takes for a line's end": "a\x85b\u2028c\u2029d",
    "of byte order marks and what is no character": "\ufeffa\ufeff\ufffe\uffff",
    "of signs beyond 16 bits": "\U0001f917 \U0001f680 \U0010ffff",
    "that YAML would read otherwise": "a: 'b' # c\n- \"d\" \\u0041 \\",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_a_text_is_applied_as_it_was_written(cluster: Cluster, namespace: str, text: str) -> None:
    meta = {"name": "text", "namespace": namespace, "annotations": {"text": text}}
    stored = await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"text": text}})
    assert stored["data"]["text"] == stored["metadata"]["annotations"]["text"] == text


async def test_half_a_sign_beyond_16_bits_is_one_that_nobody_knows(cluster: Cluster, namespace: str) -> None:
    meta = {"name": "half", "namespace": namespace}
    stored = await cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "x\ud83dy"}})
    assert stored["data"]["a"] == "x\ufffdy"


async def running(life: Life) -> Reconciler:
    operator = Reconciler(life.cluster, hrl.SETTINGS, life.now)
    await life.begin()
    for act in (serve, pass_preflight, start_head(1)):
        await operator.reconcile(life.namespace, JOB)
        await act(life)
    return operator


async def say(life: Life, state: str, message: str) -> None:
    """The supervisor's report."""
    failure = "configuration" if state == "FAILED" else None
    said = hrl.progress(state, {"uid": life.uid}, failure=failure, message=message)
    await life.patch("ConfigMap", f"{JOB}-progress", {"data": {"progress": said}})


async def test_a_driver_that_dies_with_a_smile_is_told_of_in_the_status(bare_cluster: Cluster) -> None:
    life = Life(bare_cluster, "smile")
    operator = await running(life)
    smile = "\U0001f917 Transformers found no weights"
    await say(life, "FAILED", smile)
    await operator.reconcile(life.namespace, JOB)
    assert smile in str(await life.status())


async def test_a_spec_of_two_hundred_kibibytes_runs(bare_cluster: Cluster) -> None:
    fill = [{"name": f"FILL_{number}", "value": "x" * 32_000} for number in range(7)]
    life = Life(bare_cluster, "large", changes={"trainer.env": fill})
    operator = await running(life)
    await say(life, "RUNNING", "")
    await operator.reconcile(life.namespace, JOB)
    assert (await life.status())["phase"] == "Running"
