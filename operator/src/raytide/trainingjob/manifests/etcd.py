"""The etcd container in a Paddle job's master pod.

Paddle's launcher keeps the master's task queues in an etcd with one member (TJ §2.2). The launcher's fault-tolerant
commands connect to it at the master pod's IP and cannot authenticate, so etcd listens there without authentication;
otherwise only the master uses it, and it listens on loopback only. The container meets the Pod Security Standard
*restricted* (FD:SEC-F9). Called by pod_spec.py.
"""

from typing import Final

from raytide.api.meta import Manifest
from raytide.api.trainingjob_constants import ETCD_PORT
from raytide.trainingjob.manifests.addresses import own_host
from raytide.trainingjob.manifests.environment import etcd_environment
from raytide.trainingjob.manifests.pod_context import PodContext

DATA_VOLUME: Final = "raytide-etcd"
_DATA_PATH: Final = "/var/lib/etcd"
_USER: Final = 65532
"""The image's default user is root; the data volume is writable by all users in the pod."""
_PEER_URL: Final = "http://127.0.0.1:2380"


def build_etcd(context: PodContext, outlined: Manifest) -> Manifest:
    """The container; `outlined` contains its name and resources."""
    return {
        **outlined,
        "image": context.config.etcd_image,
        "command": _command(context),
        "env": etcd_environment(context),
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


def etcd_volumes(context: PodContext) -> list[Manifest]:
    """The data volume: an emptyDir, which is lost with the pod, as upstream."""
    return [{"name": DATA_VOLUME, "emptyDir": {}}] if context.is_master and context.uses_launcher else []


def _command(context: PodContext) -> list[str]:
    own = f"http://127.0.0.1:{ETCD_PORT}"
    reached = f"http://{own_host(context.config)}:{ETCD_PORT}"
    return [
        "etcd",
        "-name",
        "etcd0",
        "-data-dir",
        f"{_DATA_PATH}/data",
        "-advertise-client-urls",
        reached if context.is_tolerant_launch else own,
        "-listen-client-urls",
        f"{own},{reached}" if context.is_tolerant_launch else own,
        "-initial-advertise-peer-urls",
        _PEER_URL,
        "-listen-peer-urls",
        _PEER_URL,
        "-initial-cluster",
        f"etcd0={_PEER_URL}",
        "-initial-cluster-state",
        "new",
    ]
