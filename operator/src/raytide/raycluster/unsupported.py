"""Fields of a RayCluster that ask for features that are not built yet.

Takes the cluster, and returns each such field with one sentence on what happens instead, in the order of the spec;
empty when there is none. No field is ignored silently: the condition `Unsupported` and a Warning event name them.
Missing protection is not listed here (protection.py) unless its owner waived it. An entry is removed when its feature
is built. Called by status.py and the plan, through validation.py.
"""

from collections.abc import Iterator
from typing import Final

from raytide.api import constants
from raytide.api.config import PodConfig
from raytide.api.raycluster import RayCluster
from raytide.api.violations import Unsupported
from raytide.raycluster.manifests import token_auth
from raytide.raycluster.protection import AUTH, NETWORK_POLICY, TLS, accepted_without


def unsupported(cluster: RayCluster, config: PodConfig = PodConfig()) -> tuple[Unsupported, ...]:  # noqa: B008 - frozen
    """Every field that asks for a feature not built yet, or whose protection its owner waived because it cannot be had."""
    return (
        *_of_auth(cluster, config),
        *_of_options(cluster),
        *_of_spec(cluster),
        *_of_annotations(cluster),
        *_of_schedulers(cluster),
    )


def _of_options(cluster: RayCluster) -> Iterator[Unsupported]:
    spec, accepted = cluster.spec, accepted_without(cluster)
    if (spec.tls_options or {}).get("enabled") and TLS in accepted:
        yield Unsupported("spec.tlsOptions.enabled", "Ray's traffic is not encrypted")
    if spec.network_policy is not None and NETWORK_POLICY in accepted:
        yield Unsupported("spec.networkPolicy", "no NetworkPolicy is created, all traffic is allowed")
    if spec.history_server_options is not None:
        yield Unsupported("spec.historyServerOptions", "no collector container is added")


def _of_auth(cluster: RayCluster, config: PodConfig) -> Iterator[Unsupported]:
    is_missing = token_auth.is_asked_for(cluster) and not token_auth.is_available(cluster, config)
    if is_missing and AUTH in accepted_without(cluster):
        yield Unsupported("spec.authOptions.mode", "Ray runs without authentication")


def _of_spec(cluster: RayCluster) -> Iterator[Unsupported]:
    spec = cluster.spec
    if spec.head_group_spec.enable_ingress:
        yield Unsupported("spec.headGroupSpec.enableIngress", "no Ingress is created")
    if spec.head_group_spec.ingress_options is not None:
        yield Unsupported("spec.headGroupSpec.ingressOptions", "no Ingress is created, so the options have no effect")
    if (spec.upgrade_strategy or {}).get("type") == "Recreate":
        yield Unsupported("spec.upgradeStrategy.type", "a changed template applies to new pods only")


_ANNOTATIONS: Final = {
    constants.IN_PLACE_RESIZE_ANNOTATION: "pods are resized in place by Ray's own autoscaler only (autoscaler.mode ray)",
}
"""Annotations that take effect by their presence."""


def _of_annotations(cluster: RayCluster) -> Iterator[Unsupported]:
    annotations = cluster.metadata.annotations
    if annotations.get(constants.ENABLE_SERVE_SERVICE_ANNOTATION) == "true":
        yield _annotation(constants.ENABLE_SERVE_SERVICE_ANNOTATION, "no serve service is created")
    for name, message in _ANNOTATIONS.items():
        if annotations.get(name):
            yield _annotation(name, message)


_OF_SCHEDULERS: Final = (
    "ray.io/gang-scheduling-enabled",
    "ray.io/priority-class-name",
    "kai.scheduler/queue",
    "volcano.sh/queue-name",
    "volcano.sh/network-topology-mode",
    "volcano.sh/network-topology-highest-tier-allowed",
    "yunikorn.apache.org/app-id",
    "yunikorn.apache.org/queue",
    "yunikorn.apache.org/task-groups",
)
"""Labels or annotations of a RayCluster that KubeRay passes to batch schedulers."""


def _of_schedulers(cluster: RayCluster) -> Iterator[Unsupported]:
    """Labels and annotations by which KubeRay passes pods to a batch scheduler, such as a queue."""
    metadata = cluster.metadata
    for place, given in (("labels", metadata.labels), ("annotations", metadata.annotations)):
        for name in _OF_SCHEDULERS:
            if name in given:
                message = "batch schedulers are not supported, so pods have no queue and are scheduled one by one"
                yield Unsupported(f"metadata.{place}[{name}]", message)


def _annotation(name: str, message: str) -> Unsupported:
    return Unsupported(f"metadata.annotations[{name}]", message)
