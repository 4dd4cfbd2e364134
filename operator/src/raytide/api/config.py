"""Operator settings as frozen values.

`manager/settings.py` fills them once from flags and environment variables (RC §6.3–6.5); no other module reads the
environment. A change requires a restart of the process (architecture §9).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from raytide.api import constants
from raytide.api.meta import Manifest
from raytide.api.node_autoscaler import Presence
from raytide.api.tenants import Tenant

AutoscalerMode: TypeAlias = Literal["raytide", "ray"]


@dataclass(frozen=True, slots=True)
class AutoscalerConfig:
    """The autoscaler sidecar of RayClusters with `enableInTreeAutoscaling`."""

    mode: AutoscalerMode = "raytide"
    """`raytide`: Raytide's. `ray`: Ray's, from the head's image, as KubeRay runs it."""
    image: str = f"{constants.IMAGE_REPOSITORY}:dev"
    """Image of Raytide's autoscaler: the operator's. A RayCluster may set another image or command."""
    creates_rbac: bool = True
    """Whether the operator creates service account, role and role binding of each autoscaler; otherwise users do."""
    has_native_sidecars: bool = False
    """Whether the API server has native sidecars for certain: since Kubernetes 1.33 they cannot be disabled (D27)."""


@dataclass(frozen=True, slots=True)
class PodConfig:
    """Settings of pod and service construction (RC §6.5)."""

    operator_version: str = "raytide-dev"
    cluster_domain: str = "cluster.local"
    is_init_container_injected: bool = True
    is_probe_injected: bool = True
    is_login_shell: bool = False
    is_head_pod_name_deterministic: bool = False
    is_head_service_cluster_ip: bool = False
    has_multi_host_indexing: bool = True
    creates_auth_secrets: bool = False
    """Whether the operator creates the Secrets of RayClusters with token authentication; otherwise users name theirs."""
    head_sidecar_containers: tuple[Manifest, ...] = ()
    worker_sidecar_containers: tuple[Manifest, ...] = ()
    default_container_envs: tuple[Manifest, ...] = ()
    default_pod_annotations: Mapping[str, str] = field(default_factory=dict)
    default_pod_labels: Mapping[str, str] = field(default_factory=dict)
    autoscaler: AutoscalerConfig = AutoscalerConfig()
    is_ipv6: bool = False
    """Whether the first address of pods is one of IPv6."""


DEFAULT_FEATURE_GATES: Final = frozenset(
    {"RayClusterStatusConditions", "RayJobDeletionPolicy", "RayMultiHostIndexing", "RayServiceIncrementalUpgrade"}
)
"""Feature gates that are on by default (RC §6.4)."""
OTHER_FEATURE_GATES: Final = frozenset(
    {
        constants.EMBEDDED_STORAGE_GATE,
        "KubernetesWAS",
        "RayClusterHistoryServer",
        "RayClusterMTLS",
        "RayClusterNetworkPolicy",
        "RayCronJob",
        "SidecarSubmitterRestart",
    }
)
"""KubeRay's gates that are off by default; the operator accepts them, implemented or not (RC §6.4)."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Settings of the RayCluster controller."""

    pods: PodConfig = PodConfig()
    is_random_pod_delete_enabled: bool = False
    """ENABLE_RANDOM_POD_DELETE: scale down an autoscaled group even when no victims are named (RC:SH-5)."""
    feature_gates: frozenset[str] = DEFAULT_FEATURE_GATES
    cleans_up_redis: bool = True
    """ENABLE_GCS_FT_REDIS_CLEANUP: remove the state of the GCS from Redis before a RayCluster is deleted (RC §2.3)."""
    state_tracks_readiness: bool = False
    """Whether `status.state` leaves `ready` when pods are missing; KubeRay's never does, and Kueue relies on that."""

    @property
    def autoscaler(self) -> AutoscalerConfig:
        """The autoscaler settings, which are part of the pod settings."""
        return self.pods.autoscaler


DEFAULT_GPUS: Final = frozenset({"nvidia.com/gpu", "amd.com/gpu"})
"""Resource names that count as GPUs; configurable, because clusters differ (TJ §3 row 18)."""
DEFAULT_ETCD_IMAGE: Final = "quay.io/coreos/etcd:v3.6.16"
"""From the repository that upstream uses, in a maintained release line of etcd (FD:SEC-F9)."""


@dataclass(frozen=True, slots=True)
class JobConfig:
    """Settings of the TrainingJob controller."""

    operator_version: str = "raytide-dev"
    cluster_domain: str = "cluster.local"
    gpus: frozenset[str] = DEFAULT_GPUS
    """The same as in `SharingConfig`: both controllers must agree on which jobs are gangs."""
    etcd_image: str = DEFAULT_ETCD_IMAGE
    """Image of the etcd container in a Paddle job's master pod."""
    is_ipv6: bool = False
    """Whether the first address of pods is one of IPv6."""


RESERVATION_S: Final = 600.0
"""Default of `SharingConfig.reservation_s`."""


@dataclass(frozen=True, slots=True)
class SharingConfig:
    """Settings of fair sharing."""

    period_s: float = 30.0
    """Seconds between passes without events."""
    settle_s: float = 1.0
    """Seconds from an event to the pass that handles it, so that bursts of events share one pass."""
    max_load_percent: Mapping[str, int] = field(default_factory=dict)
    """Resource -> the percentage of it that growth may use; 100 by default (TJ §3 row 15)."""
    gpus: frozenset[str] = DEFAULT_GPUS
    rebalance_gap: Fraction = Fraction(1, 5)
    """The part of a job's score by which another one has to be behind before trainers move to it (TJ §3 row 16)."""
    victims_per_trainer: int = 8
    """How many trainers may go at most for one that another job gains above its minimum."""
    reservation_s: float = RESERVATION_S
    """Seconds that the first job in line keeps a reservation, and then has none; 0: there are no reservations (D24)."""
    node_autoscaler: Presence = Presence.AUTO
    """Whether gangs without capacity have pods from time to time, so that a node autoscaler adds nodes for them."""
    tenants: tuple[Tenant, ...] = ()
    """Empty: priorities and scores alone decide; else namespaces have to be readable (D25)."""
