"""What does the operator count?

Every Prometheus metric, declared once, under the names RC §6.2 knows where KubeRay has one. Nothing is computed here.
Written by the rooms and main.py, read by `/metrics`.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)

PASSES: Final = Counter("raytide_reconcile", "Passes by how they ended.", ["controller", "result"], registry=REGISTRY)
PASS_SECONDS: Final = Histogram(
    "raytide_reconcile_seconds",
    "How long a pass took.",
    ["controller"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
    registry=REGISTRY,
)
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
DOORBELL_RESTARTS: Final = Counter("raytide_doorbell_restarts", "Times kopf was restarted.", registry=REGISTRY)
