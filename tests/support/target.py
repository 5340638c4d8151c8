"""Which cluster the tests on a cluster act on: never the one that the user's shell happens to point at."""

from collections.abc import Callable, Mapping

OVERRIDE = "HARBORRL_TEST_KUBECONFIG"
"""Path of a kubeconfig; for a cluster that somebody else has prepared for these tests, which delete namespaces."""


def kubeconfig(environment: Mapping[str, str], dev_cluster: Callable[[], str]) -> str:
    """The dev cluster's, which `demo prepare` installs the product on; KUBECONFIG, the user's own, is not looked at."""
    return environment.get(OVERRIDE) or dev_cluster()
