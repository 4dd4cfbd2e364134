"""Operator settings from flags and environment variables.

Names follow KubeRay (RC §6.3, §6.5); returns the frozen values of api/config and what the wiring needs. The environment
is read once, at start. A switch that defaults to on in KubeRay is off only with `false`; one that defaults to off is on
only with `true`. Filled by cli/operator.py.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from raytide.api import constants
from raytide.api.config import (
    DEFAULT_ETCD_IMAGE,
    DEFAULT_FEATURE_GATES,
    DEFAULT_GPUS,
    OTHER_FEATURE_GATES,
    RESERVATION_S,
    AutoscalerConfig,
    AutoscalerMode,
    ClusterConfig,
    JobConfig,
    PodConfig,
    SharingConfig,
)
from raytide.api.lease import LeaseTiming
from raytide.api.meta import RAYCLUSTERS, TRAININGJOBS, Resource
from raytide.api.node_autoscaler import Presence
from raytide.api.rbac_rules import Feature
from raytide.api.tenants import Tenant
from raytide.manager.tenant_settings import parse_tenants
from raytide.runtime.logs import LogFormat

UNSUPPORTED_GATES: Final = frozenset({"KubernetesWAS"})
"""Rejected when switched on: no field of a RayCluster uses the feature, so the gate would be silently ignored."""

GATES_WITHOUT_EFFECT: Final = frozenset(
    {"RayClusterStatusConditions", "RayCronJob", "RayServiceIncrementalUpgrade", "SidecarSubmitterRestart"}
)
"""Gates of features that are always on, or of kinds that are not managed: accepted, with a warning at start."""

KIND_BY_CONTROLLER: Final = {"raycluster": RAYCLUSTERS, "trainingjob": TRAININGJOBS}
"""Values of `--controllers`, as log lines name them; the sharing controller runs with that of TrainingJobs."""

VARIABLES_WITHOUT_EFFECT: Final = (
    "USE_INGRESS_ON_OPENSHIFT",
    "ENABLE_WEBHOOKS",
    "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV",
    "ENABLE_ZERO_DOWNTIME",
    "DELETE_RAYJOB_CR_AFTER_JOB_FINISHES",
    "RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS",
    "RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS",
)


def _on_unless_false(text: Any) -> bool:
    return str(text).lower() != "false"


def _off_unless_true(text: Any) -> bool:
    return str(text).lower() == "true"


OnUnlessFalse = Annotated[bool, BeforeValidator(_on_unless_false)]
OffUnlessTrue = Annotated[bool, BeforeValidator(_off_unless_true)]


def _read_as(parse: Callable[[str], Any]) -> BeforeValidator:
    """Parse a string (an environment variable) with `parse`; a value parsed by the flag is kept."""
    return BeforeValidator(lambda given: parse(given) if isinstance(given, str) else given)


def parse_feature_gates(text: str) -> frozenset[str]:
    """Parse `A=true,B=false` on top of the defaults (RC §6.4); raises ValueError that names the invalid word."""
    gates = set(DEFAULT_FEATURE_GATES)
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = word.partition("=")
        if value not in ("true", "false"):
            raise ValueError(f"{word!r} is not NAME=true or NAME=false")
        if name in UNSUPPORTED_GATES and value == "true":
            raise ValueError(f"feature gate {name!r} cannot be enabled, its feature is not implemented yet")
        if name not in DEFAULT_FEATURE_GATES | OTHER_FEATURE_GATES:
            known = ", ".join(sorted(DEFAULT_FEATURE_GATES | OTHER_FEATURE_GATES))
            raise ValueError(f"unknown feature gate {name!r}; known are {known}")
        (gates.add if value == "true" else gates.discard)(name)
    return frozenset(gates)


def parse_words(text: str) -> tuple[str, ...]:
    """Split at commas."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def parse_controllers(text: str) -> tuple[str, ...]:
    """Parse `raycluster,trainingjob`; empty means all. Raises ValueError that names the unknown word."""
    names = parse_words(text) or tuple(KIND_BY_CONTROLLER)
    if unknown := [name for name in names if name not in KIND_BY_CONTROLLER]:
        raise ValueError(f"unknown controller {unknown[0]!r}; known are {', '.join(KIND_BY_CONTROLLER)}")
    return names


def parse_max_load(text: str) -> dict[str, int]:
    """Parse `cpu=90,memory=95` in percent (optional % sign); raises ValueError that names the invalid word."""
    percent_by_resource: dict[str, int] = {}
    for word in parse_words(text):
        resource, _, percent = word.partition("=")
        digits = percent.removesuffix("%")
        if not resource or not digits.isascii() or not digits.isdigit() or not 0 < int(digits) <= 100:
            raise ValueError(f"{word!r} is not RESOURCE=PERCENT with a percentage from 1 to 100")
        percent_by_resource[resource] = int(digits)
    return percent_by_resource


def parse_gpus(text: str) -> frozenset[str]:
    """Parse a comma-separated list of resource names; empty means the defaults."""
    return frozenset(parse_words(text)) or DEFAULT_GPUS


def parse_gap(text: str) -> Fraction:
    """Parse the value of `--rebalance-gap`, such as `1/3` or `0.25`; raises ValueError unless it is from 0 to below 1."""
    try:
        gap = Fraction(text.strip()).limit_denominator(1000)
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"{text!r} is not a fraction such as 1/3 or 0.25") from error
    if not 0 <= gap < 1:
        raise ValueError(f"{text!r} must be at least 0 and below 1")
    return gap


Controllers = Annotated[tuple[str, ...], NoDecode, _read_as(parse_controllers)]
FeatureGates = Annotated[frozenset[str], NoDecode, _read_as(parse_feature_gates)]
MaxLoad = Annotated[Mapping[str, int], NoDecode, _read_as(parse_max_load)]
Gap = Annotated[Fraction, NoDecode, _read_as(parse_gap)]
Tenants = Annotated[tuple[Tenant, ...], NoDecode, _read_as(parse_tenants)]
Gpus = Annotated[frozenset[str], NoDecode, _read_as(parse_gpus)]


class Settings(BaseSettings):
    """All settings of the operator."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    # --- flags ---
    kubeconfig: str = Field(default="", validation_alias="RAYTIDE_KUBECONFIG")
    watch_namespaces: tuple[str, ...] = Field(default=(), validation_alias="RAYTIDE_WATCH_NAMESPACES")
    reconcile_concurrency: int = Field(default=8, ge=1, le=256, validation_alias="RAYTIDE_RECONCILE_CONCURRENCY")
    controllers: Controllers = Field(default=tuple(KIND_BY_CONTROLLER), validation_alias="RAYTIDE_CONTROLLERS")
    metrics_address: str = Field(default=":8080", validation_alias="RAYTIDE_METRICS_ADDR")
    health_address: str = Field(default=":8082", validation_alias="RAYTIDE_HEALTH_PROBE_BIND_ADDRESS")
    log_level: str = Field(default="info", validation_alias="RAYTIDE_LOG_LEVEL")
    log_format: LogFormat = Field(default="text", validation_alias="RAYTIDE_LOG_FORMAT")
    feature_gates: FeatureGates = Field(default=DEFAULT_FEATURE_GATES, validation_alias="RAYTIDE_FEATURE_GATES")
    is_leader_election_enabled: bool | None = Field(default=None, validation_alias="RAYTIDE_ENABLE_LEADER_ELECTION")
    """None: enabled where KubeRay enables it, in a cluster or with a namespace for the lease."""
    leader_election_namespace: str = Field(default="", validation_alias="RAYTIDE_LEADER_ELECTION_NAMESPACE")
    lease_duration_s: int = Field(default=30, ge=1, validation_alias="RAYTIDE_LEADER_ELECTION_LEASE_DURATION")
    renew_deadline_s: float = Field(default=20.0, gt=0, validation_alias="RAYTIDE_LEADER_ELECTION_RENEW_DEADLINE")
    retry_period_s: float = Field(default=4.0, gt=0, validation_alias="RAYTIDE_LEADER_ELECTION_RETRY_PERIOD")
    autoscaler_mode: AutoscalerMode = Field(default="raytide", validation_alias="RAYTIDE_AUTOSCALER_MODE")
    autoscaler_image: str = Field(default="", validation_alias="RAYTIDE_AUTOSCALER_IMAGE")
    """Empty: the published image of this version."""
    creates_autoscaler_rbac: bool = Field(default=True, validation_alias="RAYTIDE_AUTOSCALER_RBAC")
    creates_auth_secrets: bool = Field(default=False, validation_alias="RAYTIDE_AUTH_SECRETS")

    state_tracks_readiness: bool = Field(default=False, validation_alias="RAYTIDE_STATE_TRACKS_READINESS")

    sharing_period_s: float = Field(default=30.0, ge=1, validation_alias="RAYTIDE_SHARING_PERIOD")
    sharing_settle_s: float = Field(default=1.0, ge=0.1, validation_alias="RAYTIDE_SHARING_SETTLE")
    """Delay from a change to the sharing pass; no flag, for tests with short times."""
    max_load_percent: MaxLoad = Field(default_factory=dict, validation_alias="RAYTIDE_MAX_LOAD")
    gpu_resources: Gpus = Field(default=DEFAULT_GPUS, validation_alias="RAYTIDE_GPU_RESOURCES")
    rebalance_gap: Gap = Field(default=Fraction(1, 5), validation_alias="RAYTIDE_REBALANCE_GAP")
    victims_per_trainer: int = Field(default=8, ge=1, le=1000, validation_alias="RAYTIDE_VICTIMS_PER_TRAINER")
    reservation_s: float = Field(default=RESERVATION_S, ge=0, validation_alias="RAYTIDE_RESERVATION_PERIOD")
    node_autoscaler: Presence = Field(default=Presence.AUTO, validation_alias="RAYTIDE_NODE_AUTOSCALER")
    tenants: Tenants = Field(default=(), validation_alias="RAYTIDE_TENANTS")
    etcd_image: str = Field(default="", validation_alias="RAYTIDE_ETCD_IMAGE")
    """Empty: the default image."""

    stream_silence_s: float = Field(default=60.0, ge=3, validation_alias="RAYTIDE_STREAM_SILENCE")
    """A watch without bytes for this many seconds counts as dead; no flag, for tests that cannot wait a minute."""

    # --- environment of KubeRay's operator (RC §6.5) ---
    cluster_domain: str = Field(default="cluster.local", validation_alias="CLUSTER_DOMAIN")
    is_init_container_injected: OnUnlessFalse = Field(default=True, validation_alias="ENABLE_INIT_CONTAINER_INJECTION")
    is_probe_injected: OnUnlessFalse = Field(default=True, validation_alias="ENABLE_PROBES_INJECTION")
    is_random_pod_delete_enabled: OffUnlessTrue = Field(default=False, validation_alias="ENABLE_RANDOM_POD_DELETE")
    is_login_shell: OffUnlessTrue = Field(default=False, validation_alias="ENABLE_LOGIN_SHELL")
    cleans_up_redis: OnUnlessFalse = Field(default=True, validation_alias="ENABLE_GCS_FT_REDIS_CLEANUP")
    is_head_pod_name_deterministic: OffUnlessTrue = Field(
        default=False, validation_alias="ENABLE_DETERMINISTIC_HEAD_POD_NAME"
    )
    is_head_service_cluster_ip: OffUnlessTrue = Field(
        default=False, validation_alias="ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE"
    )
    # Identity of this pod: the chart sets these from the pod's own fields.
    pod_name: str = Field(default="", validation_alias="POD_NAME")
    pod_namespace: str = Field(default="", validation_alias="POD_NAMESPACE")
    pod_uid: str = Field(default="", validation_alias="POD_UID")
    api_server_host: str = Field(default="", validation_alias="KUBERNETES_SERVICE_HOST")
    """Set by the kubelet: the address of the Service `kubernetes`, whose family is the first of pods too."""

    @field_validator("cluster_domain")
    @classmethod
    def _default_domain(cls, domain: str) -> str:
        return domain or "cluster.local"

    @property
    def kinds(self) -> tuple[Resource, ...]:
        """The kinds whose controllers are enabled."""
        return tuple(kind for name, kind in KIND_BY_CONTROLLER.items() if name in self.controllers)

    @property
    def features(self) -> frozenset[Feature]:
        """The features that need permissions of their own and are switched on."""
        is_on = {
            Feature.TENANTS: bool(self.tenants),
            Feature.AUTOSCALER_RBAC: self.creates_autoscaler_rbac,
            Feature.REDIS_CLEANUP: self.cleans_up_redis,
            Feature.AUTH_SECRETS: self.creates_auth_secrets,
            Feature.EMBEDDED_STORAGE: constants.EMBEDDED_STORAGE_GATE in self.feature_gates,
        }
        return frozenset(feature for feature in Feature if is_on[feature])

    @property
    def is_ipv6(self) -> bool:
        """Whether the first address of pods is one of IPv6; False outside a cluster, where that is unknown."""
        return ":" in self.api_server_host

    def lease_timing(self) -> LeaseTiming:
        """Build the lease timing; raises ValueError that names the flag when the three times are inconsistent."""
        if not self.renew_deadline_s < self.lease_duration_s:
            raise ValueError(
                f"--leader-election-renew-deadline ({self.renew_deadline_s:g} s) must be shorter than "
                f"--leader-election-lease-duration ({self.lease_duration_s} s)"
            )
        if not self.retry_period_s * 2 <= self.renew_deadline_s:
            raise ValueError(
                f"--leader-election-retry-period ({self.retry_period_s:g} s) must be at most half of "
                f"--leader-election-renew-deadline ({self.renew_deadline_s:g} s)"
            )
        return LeaseTiming(self.lease_duration_s, self.renew_deadline_s, self.retry_period_s)

    def has_leader_election(self, *, is_in_cluster: bool) -> bool:
        """Whether to run leader election: as configured; by default wherever another replica may run."""
        if self.is_leader_election_enabled is not None:
            return self.is_leader_election_enabled
        return is_in_cluster or bool(self.leader_election_namespace)

    def cluster_config(self) -> ClusterConfig:
        """Configuration of the RayCluster controller."""
        pods = PodConfig(
            operator_version=f"raytide-{constants.VERSION}",
            cluster_domain=self.cluster_domain,
            is_init_container_injected=self.is_init_container_injected,
            is_probe_injected=self.is_probe_injected,
            is_login_shell=self.is_login_shell,
            creates_auth_secrets=self.creates_auth_secrets,
            is_head_pod_name_deterministic=self.is_head_pod_name_deterministic,
            is_head_service_cluster_ip=self.is_head_service_cluster_ip,
            has_multi_host_indexing="RayMultiHostIndexing" in self.feature_gates,
            autoscaler=AutoscalerConfig(
                mode=self.autoscaler_mode,
                image=self.autoscaler_image or f"{constants.IMAGE_REPOSITORY}:{constants.VERSION}",
                creates_rbac=self.creates_autoscaler_rbac,
            ),
            is_ipv6=self.is_ipv6,
        )
        return ClusterConfig(
            pods=pods,
            is_random_pod_delete_enabled=self.is_random_pod_delete_enabled,
            feature_gates=self.feature_gates,
            cleans_up_redis=self.cleans_up_redis,
            state_tracks_readiness=self.state_tracks_readiness,
        )

    def job_config(self) -> JobConfig:
        """Configuration of the TrainingJob controller."""
        return JobConfig(
            operator_version=f"raytide-{constants.VERSION}",
            cluster_domain=self.cluster_domain,
            gpus=self.gpu_resources,
            etcd_image=self.etcd_image or DEFAULT_ETCD_IMAGE,
            is_ipv6=self.is_ipv6,
        )

    def sharing_config(self) -> SharingConfig:
        """Configuration of the sharing controller."""
        return SharingConfig(
            period_s=self.sharing_period_s,
            settle_s=self.sharing_settle_s,
            max_load_percent=self.max_load_percent,
            gpus=self.gpu_resources,
            rebalance_gap=self.rebalance_gap,
            victims_per_trainer=self.victims_per_trainer,
            reservation_s=self.reservation_s,
            node_autoscaler=self.node_autoscaler,
            tenants=self.tenants,
        )


def variables_without_effect(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Set variables of KubeRay's operator that have no effect here (docs/compatibility.md)."""
    return tuple(name for name in VARIABLES_WITHOUT_EFFECT if environ.get(name))


def gates_without_effect(gates: frozenset[str]) -> tuple[str, ...]:
    """Feature gates of KubeRay that were changed, as `NAME=value`, but have no effect here."""
    found = [(gate, gate in gates) for gate in sorted(GATES_WITHOUT_EFFECT)]
    return tuple(f"{gate}={str(is_on).lower()}" for gate, is_on in found if is_on != (gate in DEFAULT_FEATURE_GATES))


def parse_namespaces(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list; empty means all namespaces."""
    return parse_words(text)


def parse_seconds(text: str) -> float:
    """Parse `20`, `20s`, `1m30s` or `400ms`, as in Kubernetes flags; raises ValueError."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration such as 20s")
    return sum(float(number) * units[unit] for number, unit in parts)


def parse_seconds_or_none(text: str) -> float:
    """Like `parse_seconds`, at least a second; 0 means never."""
    seconds = parse_seconds(text)
    if 0 < seconds < 1:
        raise ValueError(f"{text!r} is neither 0s nor at least 1s")
    return seconds


def parse_whole_seconds(text: str) -> int:
    """Like `parse_seconds`, where the API takes whole seconds only."""
    seconds = parse_seconds(text)
    if seconds != int(seconds) or seconds < 1:
        raise ValueError(f"{text!r} is not a number of whole seconds")
    return int(seconds)
