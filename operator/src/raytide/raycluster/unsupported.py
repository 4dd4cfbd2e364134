"""Which fields of a RayCluster ask for something that is not built yet?

Takes the cluster, gives each such field with one sentence on what happens meanwhile, in the order of the spec; empty
when everything asked for is done. Nothing is ignored in silence: the status names these fields in a condition
`Unsupported`, and a Warning event does. Protection that is missing is no matter for this list (protection.py) unless its
owner accepted to run without it. An entry goes when its feature comes. Called by status.py and the plan, through
validation.py.
"""

from collections.abc import Iterator
from typing import Final

from raytide.api import names
from raytide.api.faults import Unsupported
from raytide.api.raycluster import RayCluster
from raytide.raycluster.protection import AUTH, NETWORK_POLICY, TLS, accepted_without
from raytide.raycluster.validation_facts import has_redis_fault_tolerance


def unsupported(cluster: RayCluster) -> tuple[Unsupported, ...]:
    """Every field that names a feature not built yet."""
    return (
        *_of_options(cluster),
        *_of_auth(cluster),
        *_of_spec(cluster),
        *_of_annotations(cluster),
        *_of_schedulers(cluster),
    )


def _of_options(cluster: RayCluster) -> Iterator[Unsupported]:
    spec, accepted = cluster.spec, accepted_without(cluster)
    if spec.gcs_fault_tolerance_options is not None:
        is_redis = has_redis_fault_tolerance(cluster)
        message = _STAYS_IN_REDIS if is_redis else "no volume is made, the GCS keeps its state in memory only"
        yield Unsupported("spec.gcsFaultToleranceOptions", message)
    if (spec.tls_options or {}).get("enabled") and TLS in accepted:
        yield Unsupported("spec.tlsOptions.enabled", "Ray's traffic is not encrypted")
    if spec.network_policy is not None and NETWORK_POLICY in accepted:
        yield Unsupported("spec.networkPolicy", "no NetworkPolicy is made, all traffic is allowed")
    if spec.history_server_options is not None:
        yield Unsupported("spec.historyServerOptions", "no collector runs")


def _of_auth(cluster: RayCluster) -> Iterator[Unsupported]:
    options = cluster.spec.auth_options
    if options is None or options.get("mode") == "disabled":
        return
    if options.get("mode") == "token":
        if AUTH not in accepted_without(cluster):
            return
        yield Unsupported("spec.authOptions.mode", "Ray runs without authentication")
    elif not options.get("secretName"):
        yield Unsupported("spec.authOptions", "no Secret with a token is made")
    if options.get("secretName"):
        yield Unsupported("spec.authOptions.secretName", "the Secret is not read")
    if options.get("enableK8sTokenAuth"):
        yield Unsupported("spec.authOptions.enableK8sTokenAuth", "Ray does not ask the API server about tokens")


def _of_spec(cluster: RayCluster) -> Iterator[Unsupported]:
    spec = cluster.spec
    if spec.head_group_spec.enable_ingress:
        yield Unsupported("spec.headGroupSpec.enableIngress", "no Ingress is made")
    if spec.head_group_spec.ingress_options is not None:
        yield Unsupported("spec.headGroupSpec.ingressOptions", "no Ingress is made that would follow them")
    if (spec.upgrade_strategy or {}).get("type") == "Recreate":
        yield Unsupported("spec.upgradeStrategy.type", "a changed template takes effect on new pods only")


_STAYS_IN_REDIS: Final = "the state of the GCS stays in Redis when the cluster is deleted"

_ANNOTATIONS: Final = {
    names.FT_DELETION_TIMEOUT_ANNOTATION: "no clean-up Job is made; one that KubeRay began is waited for so long",
    names.IN_PLACE_RESIZE_ANNOTATION: "pods are resized in place by Ray's own autoscaler only (autoscaler.mode ray)",
}
"""Annotations that ask for something by being there."""


def _of_annotations(cluster: RayCluster) -> Iterator[Unsupported]:
    annotations = cluster.metadata.annotations
    if annotations.get(names.FT_ENABLED_ANNOTATION, "").lower() == "true":
        yield _annotation(names.FT_ENABLED_ANNOTATION, _STAYS_IN_REDIS)
    if annotations.get(names.ENABLE_SERVE_SERVICE_ANNOTATION) == "true":
        yield _annotation(names.ENABLE_SERVE_SERVICE_ANNOTATION, "no serve service is made")
    for name, message in _ANNOTATIONS.items():
        if annotations.get(name):
            yield _annotation(name, message)


_OF_SCHEDULERS: Final = (
    "ray.io/gang-scheduling-enabled",
    "ray.io/priority-class-name",
    "kai.scheduler/queue",
    "volcano.sh/queue-name",
    "volcano.sh/network-topology-mode",
    "volcano.sh/network-topology-highest-tier",
    "yunikorn.apache.org/app-id",
    "yunikorn.apache.org/queue",
    "yunikorn.apache.org/task-groups",
)
"""What KubeRay reads on a RayCluster on behalf of batch schedulers, as label or annotation."""


def _of_schedulers(cluster: RayCluster) -> Iterator[Unsupported]:
    metadata = cluster.metadata
    for place, given in (("labels", metadata.labels), ("annotations", metadata.annotations)):
        for name in _OF_SCHEDULERS:
            if name in given:
                message = "no batch scheduler is told, so the pods get no queue and are scheduled one by one"
                yield Unsupported(f"metadata.{place}[{name}]", message)


def _annotation(name: str, message: str) -> Unsupported:
    return Unsupported(f"metadata.annotations[{name}]", message)
