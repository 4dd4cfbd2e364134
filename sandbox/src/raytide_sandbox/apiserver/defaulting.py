"""Defaulting and admission of built-in objects.

`complete` fills defaults into the object in place, and `admit_pod` adds what the standard admission plugins add
(service account, its token, tolerations), so that controllers and kubelets read complete objects. Names and addresses
are arguments. Called by `write_handlers.py` before validation; custom kinds are defaulted by their schema.
"""

import base64
from collections.abc import Callable
from typing import Any, Final

from raytide_sandbox.apiserver.builtin_resources import Resource

Json = dict[str, Any]

_FILE_MODE: Final = 0o644
_TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
_TOKEN_LIFE_S: Final = 3607
_EVICTION_S: Final = 300
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_TEMPLATED: Final = {"deployments.apps", "replicasets.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch"}


def complete(resource: Resource, obj: Json) -> None:
    """Fill the defaults of a built-in kind, on create and on update."""
    spec = obj.get("spec")
    if resource.key == "secrets":
        _complete_secret(obj)
    if not isinstance(spec, dict):
        return
    if resource.key == "pods":
        complete_pod_spec(spec)
    elif resource.key == "services":
        _complete_service(spec)
    elif resource.key in _TEMPLATED:
        template = (spec.get("template") or {}).get("spec")
        if isinstance(template, dict):
            complete_pod_spec(template)
        _complete_workload(resource, spec)
    elif resource.key == "persistentvolumeclaims":
        spec.setdefault("volumeMode", "Filesystem")


def _complete_workload(resource: Resource, spec: Json) -> None:
    if resource.key == "jobs.batch":
        for field, value in (("parallelism", 1), ("completions", 1), ("backoffLimit", 6), ("suspend", False)):
            spec.setdefault(field, value)
        spec.setdefault("completionMode", "NonIndexed")
    elif resource.key != "daemonsets.apps":
        spec.setdefault("replicas", 1)


def _complete_secret(obj: Json) -> None:
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None)
    if plain:
        coded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **coded}


def _complete_service(spec: Json) -> None:
    kind = spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if kind != "ExternalName" and "port" in port:
            port.setdefault("targetPort", port["port"])
    if kind == "ExternalName":
        return
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if kind in {"NodePort", "LoadBalancer"}:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def assign_addresses(spec: Json, *, new_address: Callable[[], str], new_node_port: Callable[[], int]) -> None:
    """Set the cluster IP and the node ports of a new service."""
    if spec.get("type") == "ExternalName":
        return
    if not spec.get("clusterIP"):
        spec["clusterIP"] = new_address()
    spec["clusterIPs"] = [spec["clusterIP"]]
    if spec.get("type") in {"NodePort", "LoadBalancer"}:
        for port in spec.get("ports") or ():
            if not port.get("nodePort"):
                port["nodePort"] = new_node_port()


# --- pods --------------------------------------------------------------------------------------------------------------
def complete_pod_spec(spec: Json) -> None:
    """Fill the defaults of a pod spec, of a pod or of a template."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    if "serviceAccountName" in spec or "serviceAccount" in spec:
        name = spec.get("serviceAccountName") or spec.get("serviceAccount")
        spec["serviceAccountName"] = spec["serviceAccount"] = name
    for group in ("initContainers", "containers"):
        for container in spec.get(group) or ():
            _complete_container(container)
    for volume in spec.get("volumes") or ():
        _complete_volume(volume)


def _complete_container(container: Json) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image") or ""))
    resources = container.setdefault("resources", {})
    limits = resources.get("limits")
    if limits:
        resources["requests"] = {**limits, **(resources.get("requests") or {})}
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        if isinstance(source, dict) and isinstance(source.get("fieldRef"), dict):
            source["fieldRef"].setdefault("apiVersion", "v1")
        if isinstance(source, dict) and isinstance(source.get("resourceFieldRef"), dict):
            source["resourceFieldRef"].setdefault("divisor", "0")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if isinstance(container.get(name), dict):
            _complete_probe(container[name])


def _pull_policy(image: str) -> str:
    name = image.rpartition("/")[2]
    has_fixed_version = "@" in name or (":" in name and not name.endswith(":latest"))
    return "IfNotPresent" if has_fixed_version else "Always"


def _complete_probe(probe: Json) -> None:
    for field, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        probe.setdefault(field, value)
    http = probe.get("httpGet")
    if isinstance(http, dict):
        http.setdefault("path", "/")
        http.setdefault("scheme", "HTTP")


def _complete_volume(volume: Json) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if isinstance(volume.get(source), dict):
            volume[source].setdefault("defaultMode", _FILE_MODE)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")
    for part in (volume.get("projected") or {}).get("sources") or ():
        if isinstance(part.get("serviceAccountToken"), dict):
            part["serviceAccountToken"].setdefault("expirationSeconds", 3600)


def admit_pod(pod: Json, *, suffix: str, account: Json | None) -> None:
    """Add what admission adds to a new pod: service account, token, tolerations, priority and the first status."""
    spec = pod["spec"]
    name = spec.setdefault("serviceAccountName", "default")
    spec["serviceAccount"] = name
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    _tolerate(spec)
    wants = spec.get("automountServiceAccountToken", (account or {}).get("automountServiceAccountToken", True))
    if wants and spec.get("containers"):
        _mount_token(spec, f"kube-api-access-{suffix}")
    pod["status"] = {"phase": "Pending", "qosClass": quality_of_service(spec)}


def _tolerate(spec: Json) -> None:
    tolerations = spec.setdefault("tolerations", [])
    for key in (_NOT_READY, _UNREACHABLE):
        if not any(
            item.get("key") in {key, None, ""} and item.get("effect") in {"NoExecute", None, ""} for item in tolerations
        ):
            tolerations.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _EVICTION_S}
            )


def _mount_token(spec: Json, volume: str) -> None:
    is_needed = False
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        mounts = container.get("volumeMounts") or []
        if any(mount.get("mountPath") == _TOKEN_PATH for mount in mounts):
            continue
        container["volumeMounts"] = [*mounts, {"name": volume, "readOnly": True, "mountPath": _TOKEN_PATH}]
        is_needed = True
    if not is_needed:
        return
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_LIFE_S, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    projected = {"sources": sources, "defaultMode": _FILE_MODE}
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": volume, "projected": projected}]


def quality_of_service(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort, by CPU and memory of every container."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    is_best_effort, is_guaranteed = True, True
    for container in containers:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            if name in limits or name in requests:
                is_best_effort = False
            if name not in limits or requests.get(name, limits[name]) != limits[name]:
                is_guaranteed = False
    if is_best_effort:
        return "BestEffort"
    return "Guaranteed" if is_guaranteed else "Burstable"
