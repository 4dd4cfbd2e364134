"""What runs beside the master of a Paddle job?

Paddle's launcher keeps the master's task queues in an etcd of one member (TJ §2.2). The launcher's fault-tolerant commands
find it at the master pod's address and cannot log in, so it listens there for them; otherwise only the master asks, and it
listens on loopback alone. The container fulfils the Pod Security Standard *restricted* (FD:SEC-F9). Called by pod_spec.py.
"""

from typing import Final

from raytide.api.meta import Manifest
from raytide.trainingjob.construction.addresses import ETCD_PORT, OWN_ADDRESS
from raytide.trainingjob.construction.environment import etcd_environment
from raytide.trainingjob.construction.site import Site

DATA_VOLUME: Final = "raytide-etcd"
_DATA_PATH: Final = "/var/lib/etcd"
_USER: Final = 65532
"""The image's own user is root; the data directory of the pod is open to everybody in it."""
_PEER_URL: Final = "http://127.0.0.1:2380"


def build_etcd(site: Site, outlined: Manifest) -> Manifest:
    """The container; `outlined` is what the scheduler reads of it."""
    return {
        **outlined,
        "image": site.config.etcd_image,
        "command": _command(site),
        "env": etcd_environment(site),
        "volumeMounts": [{"name": DATA_VOLUME, "mountPath": _DATA_PATH}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def etcd_volumes(site: Site) -> list[Manifest]:
    """Where it keeps its data: as long as the pod lives, as upstream."""
    return [{"name": DATA_VOLUME, "emptyDir": {}}] if site.is_master and site.is_launched else []


def _command(site: Site) -> list[str]:
    own = f"http://127.0.0.1:{ETCD_PORT}"
    reached = f"http://{OWN_ADDRESS}:{ETCD_PORT}"
    return [
        "etcd",
        "-name",
        "etcd0",
        "-data-dir",
        f"{_DATA_PATH}/data",
        "-advertise-client-urls",
        reached if site.is_tolerant_launch else own,
        "-listen-client-urls",
        f"{own},{reached}" if site.is_tolerant_launch else own,
        "-initial-advertise-peer-urls",
        _PEER_URL,
        "-listen-peer-urls",
        _PEER_URL,
        "-initial-cluster",
        f"etcd0={_PEER_URL}",
        "-initial-cluster-state",
        "new",
    ]
