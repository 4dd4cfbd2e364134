"""How is the operator set up, as values?

Frozen settings that decisions may read; `settings.py` fills them once from flags and environment (RC §6.3–6.5), nobody
else reads an environment variable. Changing one means restarting the process (architecture §9).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from raytide.api import names
from raytide.api.meta import Manifest

AutoscalerMode: TypeAlias = Literal["raytide", "ray"]


@dataclass(frozen=True, slots=True)
class AutoscalerConfig:
    """Whose autoscaler runs beside the head where a RayCluster asks for one (`enableInTreeAutoscaling`)."""

    mode: AutoscalerMode = "raytide"
    """`raytide`: our own. `ray`: Ray's, from the head's image, as KubeRay runs it."""
    image: str = f"{names.IMAGE_REPOSITORY}:dev"
    """Where our own comes from: the operator's image. A RayCluster with an image or a command of its own does not use it."""


@dataclass(frozen=True, slots=True)
class PodConfig:
    """What pod and service construction may depend on (RC §6.5)."""

    operator_version: str = "raytide-dev"
    cluster_domain: str = "cluster.local"
    is_init_container_injected: bool = True
    is_probe_injected: bool = True
    is_login_shell: bool = False
    is_head_pod_name_deterministic: bool = False
    is_head_service_cluster_ip: bool = False
    has_multi_host_indexing: bool = True
    head_sidecar_containers: tuple[Manifest, ...] = ()
    worker_sidecar_containers: tuple[Manifest, ...] = ()
    default_container_envs: tuple[Manifest, ...] = ()
    default_pod_annotations: Mapping[str, str] = field(default_factory=dict)
    default_pod_labels: Mapping[str, str] = field(default_factory=dict)
    autoscaler: AutoscalerConfig = AutoscalerConfig()


DEFAULT_FEATURE_GATES: Final = frozenset(
    {"RayClusterStatusConditions", "RayJobDeletionPolicy", "RayMultiHostIndexing", "RayServiceIncrementalUpgrade"}
)
"""What is on unless the operator is told otherwise (RC §6.4)."""
OTHER_FEATURE_GATES: Final = frozenset(
    {
        "GCSFaultToleranceEmbeddedStorage",
        "KubernetesWAS",
        "RayClusterHistoryServer",
        "RayClusterMTLS",
        "RayClusterNetworkPolicy",
        "RayCronJob",
        "SidecarSubmitterRestart",
    }
)
"""KubeRay's gates that are off unless asked for; accepting one promises nothing (RC §6.4)."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """What the RayCluster room's decisions may depend on."""

    pods: PodConfig = PodConfig()
    is_random_pod_delete_enabled: bool = False
    """ENABLE_RANDOM_POD_DELETE: may shrink a group under autoscaling without names (RC:SH-5)."""
    resync_s: float = 1800.0
    feature_gates: frozenset[str] = DEFAULT_FEATURE_GATES
    state_tracks_readiness: bool = False
    """Whether `status.state` leaves `ready` when pods are missing; KubeRay's never does, and Kueue counts on it."""

    @property
    def autoscaler(self) -> AutoscalerConfig:
        """Whose autoscaler runs: pod construction has to know it too."""
        return self.pods.autoscaler


DEFAULT_GPUS: Final = frozenset({"nvidia.com/gpu", "amd.com/gpu"})
"""Resources that make a trainer one with GPUs; what a cluster calls them is its own affair (TJ §3 row 18)."""
DEFAULT_ETCD_IMAGE: Final = "quay.io/coreos/etcd:v3.6.16"
"""From the repository that upstream names, in a release line that etcd maintains (FD:SEC-F9)."""


@dataclass(frozen=True, slots=True)
class JobConfig:
    """What the TrainingJob room's decisions may depend on."""

    operator_version: str = "raytide-dev"
    cluster_domain: str = "cluster.local"
    resync_s: float = 1800.0
    gpus: frozenset[str] = DEFAULT_GPUS
    """The same as in `SharingConfig`: whoever shares and whoever starts have to agree on what a gang is."""
    etcd_image: str = DEFAULT_ETCD_IMAGE
    """What runs beside a Paddle job's master."""


@dataclass(frozen=True, slots=True)
class SharingConfig:
    """How the cluster is shared among jobs."""

    period_s: float = 30.0
    """From one pass to the next when nothing happens."""
    settle_s: float = 1.0
    """From an event to the pass that looks at it: events come in flocks."""
    max_load_percent: Mapping[str, int] = field(default_factory=dict)
    """Resource -> how much of it growth may fill at most; 100 where nothing is said (TJ §3 row 15)."""
    gpus: frozenset[str] = DEFAULT_GPUS
