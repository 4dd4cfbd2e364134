"""Which objects besides pods does a RayCluster need, and what do they look like?

Takes the cluster and the settings, gives manifests ready to be created. KubeRay never updates a head service (RC:HS-1),
so neither does anybody here. Called by plan.py; pod construction asks for names. Rules RC:HS-2 to RC:HS-8, RC:HL-2.
"""

from typing import Any, Final

from raytide.api import names
from raytide.api.config import PodConfig
from raytide.api.meta import RAYCLUSTERS, SERVICES, Manifest, controller_reference
from raytide.api.raycluster import RayCluster

_DEFAULT_PORTS: Final = {
    "client": names.CLIENT_PORT,
    "gcs-server": names.GCS_SERVER_PORT,
    "dashboard": names.DASHBOARD_PORT,
    "metrics": names.METRICS_PORT,
    "serve": names.SERVE_PORT,
}


def head_service_name(cluster: RayCluster) -> str:
    """The name the user chose in `headService`, else KubeRay's (RC:HS-2)."""
    chosen = ((cluster.spec.head_group_spec.head_service or {}).get("metadata") or {}).get("name")
    return chosen or names.head_service_name(cluster.metadata.name)


def service_fqdn(cluster: RayCluster, config: PodConfig) -> str:
    """The head service's full name in the cluster's DNS."""
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
    spec: Manifest = {**own_spec, "selector": labels, "ports": _ports(cluster, own_spec)}
    service_type = own_spec.get("type") or cluster.spec.head_group_spec.service_type
    if service_type:
        spec["type"] = service_type
    if cluster.spec.head_group_spec.head_service is None and _is_headless(service_type, config):
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return {"apiVersion": SERVICES.api_version, "kind": SERVICES.kind, "metadata": metadata, "spec": spec}


def build_headless_worker_service(cluster: RayCluster) -> Manifest:
    """The service by which the hosts of multi-host replicas find each other before they are ready (RC:HL-2)."""
    name = cluster.metadata.name
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {
            "name": names.headless_service_name(name),
            "namespace": cluster.metadata.namespace,
            "labels": {names.HEADLESS_WORKER_SERVICE_LABEL: name},
            "ownerReferences": [controller_reference(RAYCLUSTERS, name, cluster.metadata.uid)],
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.CLUSTER_LABEL: name, names.NODE_TYPE_LABEL: names.WORKER},
        },
    }


def head_service_labels(cluster: RayCluster) -> dict[str, str]:
    """The five labels of the head service, which are also its whole selector (RC:HS-3)."""
    template_metadata = cluster.spec.head_group_spec.template.get("metadata") or {}
    template_labels = template_metadata.get("labels") or {}
    return {
        names.CLUSTER_LABEL: cluster.metadata.name,
        names.NODE_TYPE_LABEL: names.HEAD,
        names.IDENTIFIER_LABEL: names.head_identifier(cluster.metadata.name),
        names.APP_NAME_LABEL: template_labels.get(names.APP_NAME_LABEL, names.APP_NAME),
        names.CREATED_BY_LABEL: names.CREATED_BY,
    }


def head_service_ports(cluster: RayCluster) -> dict[str, int]:
    """Port numbers by name: those the head's Ray container declares, else Ray's usual five (RC:HS-5)."""
    declared = cluster.spec.head_group_spec.template["spec"]["containers"][0].get("ports") or ()
    ports = {port.get("name") or f"{port['containerPort']}-port": int(port["containerPort"]) for port in declared}
    if not ports:
        return dict(_DEFAULT_PORTS)
    # A second port with the same number would make the API server refuse the whole service.
    return ports if names.METRICS_PORT in ports.values() else {"metrics": names.METRICS_PORT, **ports}


def _ports(cluster: RayCluster, own_spec: Manifest) -> list[Manifest]:
    """The user's ports as they are, then the generated ones by name, save those the user already gave (RC:HS-7)."""
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
