"""Keys, certificates and kubeconfigs: who each program is towards the API server."""

import json
from pathlib import Path
from typing import NotRequired, TypedDict

import yaml

from devcluster.components import ControlPlane
from devcluster.processes import write_atomically
from devcluster.settings import NODE_NAME
from devcluster.shell import run


class Request(TypedDict):
    """One line of work for the `pki` program; without CA it is an authority."""

    Name: str
    CommonName: str
    CA: NotRequired[str]
    Groups: NotRequired[list[str]]
    DNS: NotRequired[list[str]]
    IPs: NotRequired[list[str]]


def client(name: str, common_name: str, *groups: str) -> Request:
    return {"Name": name, "CA": "ca", "CommonName": common_name, "Groups": list(groups)}


def certificate_requests(address: str, kubernetes_service: str) -> list[Request]:
    """Everything that the cluster signs. User and group names are those that Kubernetes' default RBAC knows."""
    service_names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    return [
        {"Name": "ca", "CommonName": "devcluster"},
        {"Name": "front-proxy-ca", "CommonName": "devcluster front proxy"},
        {"Name": "service-accounts", "CommonName": "service accounts"},
        {
            "Name": "apiserver",
            "CA": "ca",
            "CommonName": "kube-apiserver",
            "DNS": [*service_names, "kubernetes.default.svc.cluster.local", "localhost"],
            "IPs": [address, kubernetes_service, "127.0.0.1"],
        },
        {"Name": "front-proxy-client", "CA": "front-proxy-ca", "CommonName": "front-proxy-client"},
        {"Name": "kubelet", "CA": "ca", "CommonName": NODE_NAME, "IPs": [address], "DNS": [NODE_NAME]},
        client("apiserver-kubelet-client", "apiserver-kubelet-client", "system:masters"),
        client("admin", "devcluster-admin", "system:masters"),
        client("controller-manager", "system:kube-controller-manager"),
        client("scheduler", "system:kube-scheduler"),
        client("kube-proxy", "system:kube-proxy"),
        client("kube-router", "devcluster-kube-router", "system:masters"),
        client("kubelet-client", f"system:node:{NODE_NAME}", "system:nodes"),
    ]


KUBECONFIGS = {
    "controller-manager": "controller-manager",
    "scheduler": "scheduler",
    "kube-proxy": "kube-proxy",
    "kube-router": "kube-router",
    "kubelet": "kubelet-client",
}
"""File name (without .kubeconfig) to certificate name."""


def kubeconfig(url: str, pki: Path, certificate: str) -> str:
    """A kubeconfig that refers to the key files, so that a key lies in one place only."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "devcluster", "cluster": {"server": url, "certificate-authority": str(pki / "ca.crt")}}
            ],
            "users": [
                {
                    "name": certificate,
                    "user": {
                        "client-certificate": str(pki / f"{certificate}.crt"),
                        "client-key": str(pki / f"{certificate}.key"),
                    },
                }
            ],
            "contexts": [{"name": "devcluster", "context": {"cluster": "devcluster", "user": certificate}}],
            "current-context": "devcluster",
        },
        sort_keys=False,
    )


def write_credentials(plane: ControlPlane, kubernetes_service: str, pki_program: str, admin: Path) -> None:
    """Makes what is missing; existing keys stay, so that a running cluster keeps its clients."""
    plane.pki.mkdir(parents=True, exist_ok=True, mode=0o700)
    plane.config.mkdir(parents=True, exist_ok=True)
    requests = certificate_requests(plane.address, kubernetes_service)
    run([pki_program, plane.pki], stdin=json.dumps(requests))
    for name, certificate in KUBECONFIGS.items():
        content = kubeconfig(plane.url, plane.pki, certificate)
        write_atomically(plane.config / f"{name}.kubeconfig", content, 0o600)
    write_atomically(admin, kubeconfig(plane.url, plane.pki, "admin"), 0o600)
