"""What does the operator count?

Every Prometheus metric, declared once, under the names RC §6.2 knows where KubeRay has one. Nothing is computed here.
Written by the rooms and main.py, read by `/metrics`.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

WRITES: Final = Counter(
    "raytide_writes", "Writes asked for by a plan, by how they ended.", ["kind", "verb", "result"], registry=REGISTRY
)
STATUS_WRITES: Final = Counter("raytide_status_writes", "Status patches sent.", ["controller"], registry=REGISTRY)
PROVISIONED_SECONDS: Final = Gauge(
    "kuberay_cluster_provisioned_duration_seconds",
    "Seconds from creation to the first time all pods were ready.",
    ["name", "namespace", "uid"],
    registry=REGISTRY,
)
DOORBELL_RINGS: Final = Counter("raytide_doorbell_rings", "Events of RayClusters that kopf told.", registry=REGISTRY)
DOORBELL_RESTARTS: Final = Counter("raytide_doorbell_restarts", "Times kopf was restarted.", registry=REGISTRY)
WAITING_KEYS: Final = Gauge(
    "raytide_waiting_keys", "Keys that are due and have no worker.", ["controller"], registry=REGISTRY
)
PASSES: Final = Gauge("raytide_passes", "Passes begun since the start.", ["controller"], registry=REGISTRY)
STREAM_AGE_SECONDS: Final = Gauge(
    "raytide_stream_age_seconds", "Since the API last gave a sign of life.", ["resource"], registry=REGISTRY
)
LEADER: Final = Gauge(
    "leader_election_master_status", "Whether this process holds the lease (1) or not (0).", ["name"], registry=REGISTRY
)
TERMS: Final = Gauge("raytide_leader_terms", "Terms of leadership begun since the start.", ["name"], registry=REGISTRY)
LEASE_AGE_SECONDS: Final = Gauge(
    "raytide_lease_age_seconds", "Since the lease was last renewed by us; 0 on a standby.", ["name"], registry=REGISTRY
)
