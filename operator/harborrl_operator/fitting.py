"""A RayCluster as the installed KubeRay takes it; looked up once an attempt, when its cluster is made."""

from collections.abc import Mapping
from typing import Any

from harborrl_operator.allowed import if_allowed
from harborrl_operator.cluster import Cluster
from harborrl_operator.errors import UnsupportedFieldError
from harborrl_operator.models.status import Adjustment
from harborrl_operator.probe import fit, schema_of

CRD = "rayclusters.ray.io"


async def fit_ray_cluster(cluster: Cluster, manifest: Mapping[str, Any]) -> tuple[dict[str, Any], list[Adjustment]]:
    """The manifest to send, and what had to be left out of it.

    Raises UnsupportedFieldError for a field that the job needs and the CRD does not know. An operator that may not read
    CRDs sends the manifest whole: the API server judges every RayCluster strictly as well.
    """
    version = str(manifest["apiVersion"]).rpartition("/")[2]
    crd = await if_allowed(cluster.get("CustomResourceDefinition", None, CRD), None)
    schema = schema_of(crd, version) if crd is not None else None
    if schema is None:
        return dict(manifest), []  # not ours to read, or nothing is served under this name: the create says so
    fitted = fit(schema, manifest)
    if fitted.missing:
        raise UnsupportedFieldError(f"apply RayCluster {manifest['metadata']['name']}", fitted.missing)
    return fitted.manifest, [
        Adjustment(field=f"RayCluster {path}", value="omitted", reason="the installed KubeRay does not know it")
        for path in fitted.dropped
    ]
