"""Configuration files of the node's programs, as pure functions of the settings."""

import json
import string
from pathlib import Path

import yaml

from devcluster.settings import BRIDGE, CGROUP, CNI_NETWORK, NFT_TABLE, Settings

TEMPLATES = Path(__file__).parent / "manifests"

PAUSE_IMAGE = "localhost/devcluster/pause:1"

CNI_PLUGINS = "/usr/lib/cni"
"""Where Debian's containernetworking-plugins puts them."""

MAX_PODS = 250
"""Sandbox pods are small and many; addresses (a /22) are the next limit."""


KUBELET_LIMITS = {
    "maxPods": MAX_PODS,
    "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
    "imageGCHighThresholdPercent": 100,
    "imageGCLowThresholdPercent": 99,
    "nodeStatusUpdateFrequency": "10s",
    "syncFrequency": "10s",
    "kubeAPIQPS": 100,
    "kubeAPIBurst": 200,
}
"""Nothing is evicted or collected: the machine is shared with builds, whose use of disk and memory is not the pods'
fault, and an image that was collected could not be pulled again. Delays are short because tests wait for them."""


def containerd_toml(settings: Settings) -> str:
    """Containerd 1.6 with everything it keeps inside the state folder.

    `restrict_oom_score_adj`: a machine without CAP_SYS_RESOURCE may not lower the score, and every pod would fail.
    `discard_unpacked_layers`: a layer is needed once, for unpacking; keeping it would double a 6 GiB image.
    """
    template = string.Template((TEMPLATES / "containerd.toml").read_text())
    return template.substitute(
        state=settings.state,
        run=settings.run,
        socket=settings.containerd_socket,
        config=settings.config,
        plugins=CNI_PLUGINS,
        pause=PAUSE_IMAGE,
    )


def registry_hosts(port: int) -> str:
    """Where containerd looks for `localhost/...` images: the server that a `load` runs."""
    return f"""\
server = "http://127.0.0.1:{port}"

[host."http://127.0.0.1:{port}"]
  capabilities = ["pull", "resolve"]
"""


def cni_conflist(settings: Settings, mtu: int) -> str:
    """One bridge, addresses from a file. Masquerading is ours (`masquerade_rules`), so the plugin leaves no chains."""
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "mtu": mtu,
        "ipam": {
            "type": "host-local",
            "dataDir": f"{settings.state}/cni",
            "ranges": [[{"subnet": settings.network.pods, "gateway": settings.network.gateway}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return json.dumps({"cniVersion": "1.0.0", "name": CNI_NETWORK, "plugins": [bridge]}, indent=2)


def masquerade_rules(settings: Settings) -> str:
    """Nftables script: pods reach other machines under this machine's address. Applying it twice changes nothing."""
    pods = settings.network.pods
    return f"""\
table ip {NFT_TABLE}
delete table ip {NFT_TABLE}
table ip {NFT_TABLE} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {pods} oifname != "{BRIDGE}" masquerade
  }}
}}
"""


def kubelet_config(settings: Settings) -> str:
    ports, network = settings.ports, settings.network
    return yaml.safe_dump(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": network.gateway,
            "port": ports.kubelet,
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": ports.kubelet_health,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{settings.pki}/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": f"{settings.pki}/kubelet.crt",
            "tlsPrivateKeyFile": f"{settings.pki}/kubelet.key",
            "containerRuntimeEndpoint": f"unix://{settings.containerd_socket}",
            "clusterDNS": [network.dns],
            "clusterDomain": "cluster.local",
            "resolvConf": f"{settings.config}/resolv.conf",
            "podLogsDir": f"{settings.logs}/pods",
            "volumePluginDir": f"{settings.state}/kubelet/volume-plugins",
            "staticPodPath": "",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{CGROUP}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "serializeImagePulls": False,
            **KUBELET_LIMITS,
        },
        sort_keys=False,
    )


def proxy_config(settings: Settings) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": f"{settings.config}/kube-proxy.kubeconfig"},
            "clusterCIDR": settings.network.pods,
            "healthzBindAddress": f"127.0.0.1:{settings.ports.proxy_health}",
            "metricsBindAddress": f"127.0.0.1:{settings.ports.proxy_metrics}",
            "nodePortAddresses": ["127.0.0.0/8", f"{settings.network.gateway}/32"],
            # 0: leave the machine's connection tracking limits alone.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"},
        },
        sort_keys=False,
    )


def pod_resolv_conf(host: str) -> str:
    """The machine's resolvers without those on loopback, which a pod cannot reach and CoreDNS would loop over."""
    servers = [
        line for line in host.splitlines() if line.startswith("nameserver") and not line.split()[1].startswith("127.")
    ]
    return "".join(f"{line}\n" for line in servers)
