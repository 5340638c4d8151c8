"""`harborrl validate` beside a real API server: it refuses what that refuses, and its form of a job is not stricter."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from harborrl_cli.validation.jobs import Assumed, judge
from harborrl_operator.manifests.form import form_faults
from support.control_plane import admin_client
from support.mutants import mutants

pytestmark = pytest.mark.api

JOBS = "/apis/harborrl.dev/v1alpha1/namespaces/default/harborrljobs"
META = {"name": "fuzz", "namespace": "default"}


@pytest.fixture(scope="module")
def client(kubectl: Any) -> Iterator[httpx.Client]:
    with admin_client(kubectl.plane) as connected:
        yield connected


@given(mutants())
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_validate_and_the_api_server_agree_on_any_spec(client: httpx.Client, spec: dict[str, Any]) -> None:
    job = {"apiVersion": "harborrl.dev/v1alpha1", "kind": "HarborRLJob", "metadata": META, "spec": spec}
    answer = client.post(JOBS, params={"dryRun": "All", "fieldValidation": "Strict"}, json=job)
    if answer.status_code == httpx.codes.CREATED:
        assert list(form_faults(job)) == []
    else:
        refused = [one for one in judge(job, Assumed()).findings if one.severity == "refused"]
        assert refused, answer.json()["message"]
