"""Prometheus metrics of the operator.

Every metric is declared here once, under the names of RC §6.2 and TJ §8 where these define one. Nothing is computed
here. Written by the controllers and manager/main.py, read by `/metrics`.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from raytide.api.meta import Key


class ObjectGauge(Collector):
    """A gauge whose series belong to objects, with the labels `namespace` and `name` before its own.

    All series of an object are replaced at once, so that none of a removed part stays. It keeps numbers instead of a child
    with a lock for each series.
    """

    def __init__(self, name: str, documentation: str, labels: tuple[str, ...], *, registry: CollectorRegistry) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = ("namespace", "name", *labels)
        self._values: dict[Key, Mapping[tuple[str, ...], int]] = {}
        registry.register(self)

    def replace(self, key: Key, values: Mapping[tuple[str, ...], int]) -> None:
        """Set the object's series, by the values of the other labels; those that are not among them are removed."""
        if values:
            self._values[key] = values
        else:
            self._values.pop(key, None)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The gauge without series."""
        yield GaugeMetricFamily(self._name, self._documentation, labels=self._labels)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauge with the series of all objects."""
        (family,) = self.describe()
        for key, values in self._values.items():
            for labels, value in values.items():
                family.add_metric((*key, *labels), value)
        yield family


REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

MEMORY_LIMIT: Final = Gauge(
    "raytide_memory_limit_bytes", "Memory limit of the operator's container; 0 if it has none.", registry=REGISTRY
)
WRITES: Final = Counter(
    "raytide_writes",
    "Writes of plans to the API server, by kind, verb and result.",
    ["kind", "verb", "result"],
    registry=REGISTRY,
)
STATUS_WRITES: Final = Counter(
    "raytide_status_writes", "Status patches sent to the API server.", ["controller"], registry=REGISTRY
)
PROVISIONED_SECONDS: Final = Gauge(
    "kuberay_cluster_provisioned_duration_seconds",
    "Seconds from creation to the first time all pods were ready.",
    ["name", "namespace", "uid"],
    registry=REGISTRY,
)
RAYCLUSTER_WORKERS: Final = ObjectGauge(
    "raycluster_workers",
    "Workers of a group of a RayCluster by state: desired, or ready (running, ready and not terminating).",
    ("group", "state"),
    registry=REGISTRY,
)
RAYCLUSTER_MISSING_WORKERS: Final = ObjectGauge(
    "raycluster_missing_workers",
    "Desired workers of a group of a RayCluster that are not ready, by their most frequent cause.",
    ("group", "reason"),
    registry=REGISTRY,
)
RAYCLUSTER_SCALING_LIMITED: Final = ObjectGauge(
    "raycluster_scaling_limited",
    "1 while a RayCluster has the condition ScalingLimited, by its reason.",
    ("reason",),
    registry=REGISTRY,
)
RAYCLUSTER_TIME_TO_CAPACITY: Final = Histogram(
    "raycluster_time_to_capacity_seconds",
    "Seconds from the first missing worker of a RayCluster until it has all desired workers again.",
    registry=REGISTRY,
    buckets=(1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
)
JOB_INSTANCES: Final = Gauge(
    "trainingjob_instances",
    "Pods of a TrainingJob by role and state: desired ones, and existing ones by state.",
    ["namespace", "name", "role", "state"],
    registry=REGISTRY,
)
JOB_FULFILLMENT: Final = Gauge(
    "trainingjob_fulfillment",
    "Fulfillment score of a TrainingJob: 0 at its minimum, 1 at its maximum.",
    ["namespace", "name"],
    registry=REGISTRY,
)
JOB_WAITING_SECONDS: Final = Gauge(
    "trainingjob_waiting_seconds",
    "Seconds since the TrainingJob began to wait; 0 while it does not wait.",
    ["namespace", "name"],
    registry=REGISTRY,
)
JOB_RESIZES: Final = Counter(
    "trainingjob_scale",
    "Resizes of TrainingJobs, by direction (up, down) and reason.",
    ["direction", "reason"],
    registry=REGISTRY,
)
RESIZES_BY_JOB: Final = Counter(
    "trainingjob_resizes",
    "Resizes of a TrainingJob by direction (up, down).",
    ["namespace", "name", "direction"],
    registry=REGISTRY,
)
KOPF_EVENTS: Final = Counter("raytide_kopf_events", "Events received from kopf.", ["resource"], registry=REGISTRY)
KOPF_RESTARTS: Final = Counter("raytide_kopf_restarts", "Restarts of kopf.", registry=REGISTRY)
WAITING_KEYS: Final = Gauge(
    "raytide_waiting_keys", "Keys in the work queue that are due and have no worker.", ["controller"], registry=REGISTRY
)
PASSES: Final = Gauge("raytide_passes", "Reconciles since the process started.", ["controller"], registry=REGISTRY)
RECONCILE_SECONDS: Final = Histogram(
    "raytide_reconcile_seconds",
    "Duration of one reconcile of an object, including its requests, in seconds.",
    ["controller"],
    registry=REGISTRY,
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
)
RECONCILE_ERRORS: Final = Counter(
    "raytide_reconcile_errors",
    "Reconciles that ended with an error, by reason; the object is reconciled again.",
    ["controller", "reason"],
    registry=REGISTRY,
)
STREAM_AGE_SECONDS: Final = Gauge(
    "raytide_stream_age_seconds",
    "Seconds since the API server last sent anything on the watch of the resource.",
    ["resource"],
    registry=REGISTRY,
)
OPTIONAL_STREAM_LISTED: Final = Gauge(
    "raytide_optional_stream_listed",
    "Whether an optional resource, such as nodes, is listed and watched (1) or not (0).",
    ["resource"],
    registry=REGISTRY,
)
LEADER: Final = Gauge(
    "leader_election_master_status", "Whether this process is the leader (1) or not (0).", ["name"], registry=REGISTRY
)
TERMS: Final = Gauge("raytide_leader_terms", "Leader terms since the process started.", ["name"], registry=REGISTRY)
LEASE_AGE_SECONDS: Final = Gauge(
    "raytide_lease_age_seconds",
    "Seconds since this process renewed the Lease; 0 unless it is the leader.",
    ["name"],
    registry=REGISTRY,
)

POOL_FREE: Final = Gauge(
    "pool_free", "Free capacity of usable nodes; CPU in millicores.", ["resource"], registry=REGISTRY
)
POOL_FRAGMENTED: Final = Gauge(
    "pool_fragmented",
    "Free capacity that is too scattered over nodes for one more instance of any job that requests it; CPU in millicores.",
    ["resource"],
    registry=REGISTRY,
)
POOL_PLAN_SECONDS: Final = Histogram(
    "pool_plan_seconds",
    "Duration of computing a plan of fair sharing from a snapshot, in seconds.",
    registry=REGISTRY,
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
)
POOL_PLAN_STEPS: Final = Counter("pool_plan_steps", "Instances added or removed by fair sharing.", registry=REGISTRY)
