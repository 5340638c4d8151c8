"""The tests on a cluster delete namespaces, so they must find their own cluster and no other."""

from support import target


def dev_cluster() -> str:
    return "/state/kubeconfig"


def test_the_users_own_cluster_is_never_tested_on() -> None:
    assert target.kubeconfig({"KUBECONFIG": "/home/me/.kube/config"}, dev_cluster) == "/state/kubeconfig"


def test_another_cluster_is_named_on_purpose() -> None:
    assert target.kubeconfig({target.OVERRIDE: "/prepared", "KUBECONFIG": "/mine"}, dev_cluster) == "/prepared"
