"""Manifests of the head service and the headless worker service.

Takes the cluster and the settings and returns manifests ready to be created. Like KubeRay, the operator never updates a
head service (RC:HS-1). Called by raycluster/plan.py, and by pod construction for names. Rules RC:HS-2 to RC:HS-8,
RC:HL-2.
"""

from typing import Any, Final

from raytide.api import constants
from raytide.api.config import PodConfig
from raytide.api.meta import RAYCLUSTERS, SERVICES, Manifest, controller_reference
from raytide.api.raycluster import RayCluster
from raytide.raycluster.spec_queries import default_labels, fixed_labels, ray_labels

_DEFAULT_PORTS: Final = {
    "client": constants.CLIENT_PORT,
    "gcs-server": constants.GCS_SERVER_PORT,
    "dashboard": constants.DASHBOARD_PORT,
    "metrics": constants.METRICS_PORT,
    "serve": constants.SERVE_PORT,
}


def head_service_name(cluster: RayCluster) -> str:
    """The name set in `headService`, else KubeRay's default (RC:HS-2)."""
    chosen = ((cluster.spec.head_group_spec.head_service or {}).get("metadata") or {}).get("name")
    return chosen or constants.head_service_name(cluster.metadata.name)


def service_fqdn(cluster: RayCluster, config: PodConfig) -> str:
    """The head service's full DNS name."""
    return f"{head_service_name(cluster)}.{cluster.metadata.namespace}.svc.{config.cluster_domain}"


def build_head_service(cluster: RayCluster, config: PodConfig) -> Manifest:
    """The service in front of the head pod, from the user's `headService` if there is one (RC:HS-3 to RC:HS-8)."""
    own: Manifest = cluster.spec.head_group_spec.head_service or {}
    own_metadata: Manifest = own.get("metadata") or {}
    own_spec: Manifest = own.get("spec") or {}
    labels = head_service_labels(cluster)
    annotations = {**(own_metadata.get("annotations") or {}), **cluster.spec.head_service_annotations}
    metadata: Manifest = {
        "name": head_service_name(cluster),
        "namespace": cluster.metadata.namespace,
        "labels": {**(own_metadata.get("labels") or {}), **labels},
        "ownerReferences": [controller_reference(RAYCLUSTERS, cluster.metadata.name, cluster.metadata.uid)],
    }
    if annotations:
        metadata["annotations"] = annotations
    if own_metadata.get("finalizers"):
        metadata["finalizers"] = own_metadata["finalizers"]
    spec: Manifest = {**own_spec, "selector": head_selector(cluster), "ports": _ports(cluster, own_spec)}
    service_type = own_spec.get("type") or cluster.spec.head_group_spec.service_type
    if service_type:
        spec["type"] = service_type
    if cluster.spec.head_group_spec.head_service is None and _is_headless(service_type, config):
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return {"apiVersion": SERVICES.api_version, "kind": SERVICES.kind, "metadata": metadata, "spec": spec}


def build_headless_worker_service(cluster: RayCluster) -> Manifest:
    """The service that gives workers DNS names before they are ready, for multi-host replicas (RC:HL-2)."""
    name = cluster.metadata.name
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {
            "name": constants.headless_service_name(name),
            "namespace": cluster.metadata.namespace,
            "labels": {constants.HEADLESS_WORKER_SERVICE_LABEL: name},
            "ownerReferences": [controller_reference(RAYCLUSTERS, name, cluster.metadata.uid)],
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {constants.CLUSTER_LABEL: name, constants.NODE_TYPE_LABEL: constants.WORKER},
        },
    }


def head_service_labels(cluster: RayCluster) -> dict[str, str]:
    """The five labels of the head service (RC:HS-3)."""
    head = cluster.spec.head_group_spec
    template_metadata = head.template.get("metadata") or {}
    template_labels = template_metadata.get("labels") or {}
    labels = default_labels(cluster, head)
    app_name = template_labels.get(constants.APP_NAME_LABEL, labels[constants.APP_NAME_LABEL])
    return {**_fixed_selector(cluster), **labels, constants.APP_NAME_LABEL: app_name}


def head_selector(cluster: RayCluster) -> dict[str, str]:
    """The labels by which the head service selects: those that the head's template and group leave as they are (FD:RC3-4).

    An overridden label is left out: its value may change with the next head, and services are not updated.
    """
    head = cluster.spec.head_group_spec
    of_pod = ray_labels(cluster, head)
    kept = {label: value for label, value in default_labels(cluster, head).items() if of_pod[label] == value}
    return {**_fixed_selector(cluster), **kept}


def _fixed_selector(cluster: RayCluster) -> dict[str, str]:
    fixed = fixed_labels(cluster, cluster.spec.head_group_spec)
    return {label: fixed[label] for label in (constants.CLUSTER_LABEL, constants.NODE_TYPE_LABEL)}


def head_service_ports(cluster: RayCluster) -> dict[str, int]:
    """Port numbers by name: those the head's Ray container declares, else Ray's usual five (RC:HS-5)."""
    declared = cluster.spec.head_group_spec.template["spec"]["containers"][0].get("ports") or ()
    ports = {port.get("name") or f"{port['containerPort']}-port": int(port["containerPort"]) for port in declared}
    if not ports:
        return dict(_DEFAULT_PORTS)
    # With a second port of the same number the API server would reject the whole service.
    return ports if constants.METRICS_PORT in ports.values() else {"metrics": constants.METRICS_PORT, **ports}


def _ports(cluster: RayCluster, own_spec: Manifest) -> list[Manifest]:
    """The user's ports unchanged, then the generated ones by name, except those the user already set (RC:HS-7)."""
    own_ports: list[Manifest] = list(own_spec.get("ports") or ())
    taken: set[Any] = {port.get("name") for port in own_ports}
    taken |= {port["port"] for port in own_ports if port.get("protocol", "TCP") == "TCP"}
    generated = sorted(head_service_ports(cluster).items())
    return own_ports + [
        {"name": name, "port": number, "appProtocol": "tcp"}
        for name, number in generated
        if name not in taken and number not in taken
    ]


def _is_headless(service_type: str, config: PodConfig) -> bool:
    return service_type in {"", "ClusterIP"} and not config.is_head_service_cluster_ip
