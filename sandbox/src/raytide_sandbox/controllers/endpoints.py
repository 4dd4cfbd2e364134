"""Endpoints and EndpointSlice controller.

Takes changes of services and pods and writes, per service with a selector, its Endpoints and EndpointSlices: ready and
not ready addresses, the ports as each pod names them, hostnames of headless services. An index of label pairs maps pods
to services and back, so the cost of a pod change follows the number of its services. One of the sandbox's controllers;
DNS names in the pod network are derived from its Endpoints.
"""

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from raytide_sandbox.apiserver.store import Entry, ObjectKey, Store
from raytide_sandbox.controllers.base import Json, Noted, attempt

SLICES: Final = "endpointslices.discovery.k8s.io"
SERVICE_LABEL: Final = "kubernetes.io/service-name"
SLICE_SIZE: Final = 100
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_ENDED: Final = ("Succeeded", "Failed")

LabelPair = tuple[str, str, str]
"""(namespace, label, value)."""
Ports = tuple[tuple[str, int, str], ...]
"""(name, number, protocol), with the port numbers of one pod."""


class EndpointsController:
    """Keeps Endpoints and EndpointSlices equal to the pods that selectors match."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._selectors: dict[ObjectKey, dict[str, str]] = {}
        self._services_by_pair: dict[LabelPair, set[ObjectKey]] = {}
        self._pods_by_pair: dict[LabelPair, set[ObjectKey]] = {}
        self._due: set[ObjectKey] = set()

    # --- noting --------------------------------------------------------------------------------------------------------
    def on_change(self, noted: Noted) -> None:
        """Update the indices and queue the services that a change affects."""
        if noted.key.resource == "services":
            self._on_service_change(noted)
        elif noted.key.resource == "pods":
            self._on_pod_change(noted)
        elif noted.key.resource == "endpoints" and noted.is_gone:
            self._due.add(ObjectKey("services", noted.key.namespace, noted.key.name))

    def _on_service_change(self, noted: Noted) -> None:
        key = noted.key
        old = self._selectors.pop(key, None)
        if old:
            self._services_by_pair[_first_pair(key.namespace, old)].discard(key)
        selector = {} if noted.is_gone else noted.obj.get("spec", {}).get("selector") or {}
        if selector:
            self._selectors[key] = selector
            self._services_by_pair.setdefault(_first_pair(key.namespace, selector), set()).add(key)
        if selector or old:
            self._due.add(key)

    def _on_pod_change(self, noted: Noted) -> None:
        key, change = noted.key, noted.change
        before = change.previous.labels if change.previous else {}
        after: dict[str, str] = {} if noted.is_gone else change.entry.labels
        if before != after or change.type == "ADDED":
            for pair in _pairs(key.namespace, before):
                _discard(self._pods_by_pair, pair, key)
            for pair in _pairs(key.namespace, after):
                self._pods_by_pair.setdefault(pair, set()).add(key)
        for labels in (before, change.entry.labels):
            for pair in _pairs(key.namespace, labels):
                for service in self._services_by_pair.get(pair, ()):
                    if self._selectors[service].items() <= labels.items():
                        self._due.add(service)

    # --- acting --------------------------------------------------------------------------------------------------------
    def act(self, now: datetime) -> datetime | None:  # noqa: ARG002 - nothing here waits for a time
        """Write the Endpoints and slices of the queued services where they differ."""
        due, self._due = self._due, set()
        for key in sorted(due):
            entry = self._store.find(*key)
            if entry is None or key not in self._selectors:
                self._forget(key, entry)
            elif not entry.is_terminating:
                self._write(key, entry.obj())
        return None

    def _forget(self, key: ObjectKey, service: Entry | None) -> None:
        """Delete the Endpoints of a deleted service; without a selector, Endpoints belong to the service's user."""
        if service is None:
            attempt(lambda: self._store.delete("endpoints", key.namespace, key.name))

    def _write(self, key: ObjectKey, service: Json) -> None:
        # Another controller may have deleted a pod in this step: that change is noted next.
        found = [self._store.find(*pod) for pod in sorted(self._select(key))]
        pods_by_ports = group_by_ports(service, [entry.shared() for entry in found if entry])
        self._put(build_endpoints(service, pods_by_ports), "endpoints", ("subsets",))
        wanted = build_slices(service, pods_by_ports)
        names = {piece["metadata"]["name"] for piece in wanted}
        for piece in wanted:
            self._put(piece, SLICES, ("endpoints", "ports", "addressType"))
        for dependent in sorted(self._store.dependents(service["metadata"]["uid"])):
            if dependent.resource == SLICES and dependent.name not in names:
                attempt(lambda dependent=dependent: self._store.delete(*dependent))  # type: ignore[misc]

    def _select(self, key: ObjectKey) -> set[ObjectKey]:
        pods = [self._pods_by_pair.get(pair, set()) for pair in _pairs(key.namespace, self._selectors[key])]
        return set.intersection(*sorted(pods, key=len))

    def _put(self, wanted: Json, resource: str, fields: Iterable[str]) -> None:
        metadata = wanted["metadata"]
        entry = self._store.find(resource, metadata["namespace"], metadata["name"])
        if entry is None:
            attempt(lambda: self._store.create(resource, wanted))
            return
        obj = entry.obj()
        for field in fields:
            if field in wanted:
                obj[field] = wanted[field]
            else:
                obj.pop(field, None)
        obj["metadata"]["labels"] = metadata["labels"]
        attempt(lambda: self._store.update(resource, obj))


def group_by_ports(service: Json, pods: Iterable[Json]) -> dict[Ports, list[Json]]:
    """Group the selected pods that have an address and have not ended by their port numbers."""
    found: dict[Ports, list[Json]] = {}
    for pod in pods:
        if _is_listed(pod):
            found.setdefault(_ports(service, pod), []).append(pod)
    return found


def build_endpoints(service: Json, pods_by_ports: dict[Ports, list[Json]]) -> Json:
    """Build the Endpoints object of a service."""
    subsets = []
    for ports, pods in sorted(pods_by_ports.items()):
        subset: Json = {}
        for pod in pods:
            if _is_published(service, pod):
                field = "addresses" if _counts_as_ready(service, pod) else "notReadyAddresses"
                subset.setdefault(field, []).append(_address(service, pod))
        if subset:
            if ports:
                subset["ports"] = [_port(port) for port in ports]
            subsets.append(subset)
    metadata = service["metadata"]
    labels = {**(metadata.get("labels") or {}), "endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    if _is_headless(service):
        labels["service.kubernetes.io/headless"] = ""
    found: Json = {"metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "labels": labels}}
    if subsets:
        found["subsets"] = subsets
    return found


def build_slices(service: Json, pods_by_ports: dict[Ports, list[Json]]) -> list[Json]:
    """Build the EndpointSlices of a service; a single empty one when no pod is selected."""
    pieces: list[tuple[Ports, list[Json]]] = [
        (ports, pods[start : start + SLICE_SIZE])
        for ports, pods in sorted(pods_by_ports.items())
        for start in range(0, len(pods), SLICE_SIZE)
    ]
    return [_slice(service, ports, pods, number) for number, (ports, pods) in enumerate(pieces or [((), [])])]


def _slice(service: Json, ports: Ports, pods: list[Json], number: int) -> Json:
    metadata = service["metadata"]
    labels = {
        **(metadata.get("labels") or {}),
        SERVICE_LABEL: metadata["name"],
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    if _is_headless(service):
        labels["service.kubernetes.io/headless"] = ""
    reference = {"apiVersion": "v1", "kind": "Service", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "metadata": {
            "name": f"{metadata['name']}-{_suffix(metadata['uid'], number)}",
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
        },
        "addressType": "IPv4",
        "endpoints": [_endpoint(service, pod) for pod in pods],
        "ports": [_port(port) for port in ports],
    }


def _endpoint(service: Json, pod: Json) -> Json:
    is_terminating = "deletionTimestamp" in pod["metadata"]
    is_serving = _is_ready(pod)
    is_ready = is_serving and not is_terminating
    address = _address(service, pod)
    endpoint: Json = {
        "addresses": [address.pop("ip")],
        "conditions": {
            "ready": is_ready or _publishes_all(service),
            "serving": is_serving,
            "terminating": is_terminating,
        },
    }
    return {**endpoint, **address}


def _address(service: Json, pod: Json) -> Json:
    metadata, spec = pod["metadata"], pod["spec"]
    target = {"kind": "Pod", "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]}
    address: Json = {"ip": pod["status"]["podIP"], "targetRef": target}
    if spec.get("nodeName"):
        address["nodeName"] = spec["nodeName"]
    if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
        address["hostname"] = spec["hostname"]
    return address


def _ports(service: Json, pod: Json) -> Ports:
    """The service's ports with this pod's numbers; a named port that the pod does not have is left out."""
    found = []
    for port in service["spec"].get("ports") or ():
        target: Any = port.get("targetPort", port["port"])
        protocol = port.get("protocol", "TCP")
        number = target if isinstance(target, int) else _named_port(pod, target, protocol)
        if number is not None:
            found.append((port.get("name", ""), number or port["port"], protocol))
    return tuple(sorted(found))


def _named_port(pod: Json, name: str, protocol: str) -> int | None:
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == name and port.get("protocol", "TCP") == protocol:
                number: int = port["containerPort"]
                return number
    return None


def _port(port: tuple[str, int, str]) -> Json:
    name, number, protocol = port
    return {**({"name": name} if name else {}), "port": number, "protocol": protocol}


def _is_listed(pod: Json) -> bool:
    status = pod.get("status") or {}
    return bool(status.get("podIP")) and status.get("phase") not in _ENDED


def _is_ready(pod: Json) -> bool:
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in pod["status"].get("conditions") or ())


def _publishes_all(service: Json) -> bool:
    return bool(service["spec"].get("publishNotReadyAddresses"))


def _counts_as_ready(service: Json, pod: Json) -> bool:
    return _publishes_all(service) or _is_ready(pod)


def _is_published(service: Json, pod: Json) -> bool:
    """Endpoints leave out a terminating pod, unless the service publishes not ready addresses."""
    return _publishes_all(service) or "deletionTimestamp" not in pod["metadata"]


def _is_headless(service: Json) -> bool:
    return bool(service["spec"].get("clusterIP") == "None")


def _suffix(uid: str, number: int) -> str:
    """Five characters like those of generateName, but derived from the uid, so that runs are reproducible."""
    digest = int.from_bytes(hashlib.sha256(f"{uid}/{number}".encode()).digest()[:8])
    letters = []
    for _ in range(5):
        digest, letter = divmod(digest, len(_ALPHABET))
        letters.append(_ALPHABET[letter])
    return "".join(letters)


def _pairs(namespace: str, labels: dict[str, str]) -> list[LabelPair]:
    return [(namespace, label, value) for label, value in labels.items()]


def _first_pair(namespace: str, selector: dict[str, str]) -> LabelPair:
    """The index key of a service: the pair of its smallest label, so that it is always the same."""
    label = min(selector)
    return (namespace, label, selector[label])


def _discard(index: dict[LabelPair, set[ObjectKey]], pair: LabelPair, key: ObjectKey) -> None:
    keys = index.get(pair)
    if keys:
        keys.discard(key)
        if not keys:
            del index[pair]
