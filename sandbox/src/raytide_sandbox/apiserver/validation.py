"""Validation of built-in objects.

Takes an object as it would be stored and returns causes in a real API server's words: names, labels, required fields of
pods and services, and immutable fields. Deliberately minimal (the sandbox with a real control plane covers the rest);
changes nothing. Called by `write_handlers.py` before every write.
"""

import re
from typing import Any, Final

from msgspec import json

from raytide.api.quantity import Quantity
from raytide_sandbox.apiserver.api_status import Cause, bad_request
from raytide_sandbox.apiserver.builtin_resources import Resource

Json = dict[str, Any]

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_DNS_1035: Final = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_QUANTITY: Final = re.compile(r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
_LABEL_VALUE: Final = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_LABEL_NAME: Final = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_SERVICE_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")

_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    rf"'{_LABEL}(\.{_LABEL})*')"
)
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_DNS_1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_DNS_1035}')"
)
_LABEL_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    r"'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_LABEL_NAME_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")
_QUANTITY_TEXT: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def wrong_value(field: str, value: Any, text: str) -> Cause:
    """The cause `spec.x: Invalid value: "v": text`."""
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return Cause(field, f"Invalid value: {shown}: {text}")


def required(field: str, text: str = "") -> Cause:
    """The cause `spec.x: Required value`."""
    return Cause(field, f"Required value: {text}" if text else "Required value", "FieldValueRequired")


def unsupported(field: str, value: str, known: tuple[str, ...]) -> Cause:
    """The cause `spec.x: Unsupported value: …`."""
    listed = ", ".join(f'"{item}"' for item in known)
    return Cause(field, f'Unsupported value: "{value}": supported values: {listed}', "FieldValueNotSupported")


def metadata_faults(resource: Resource, obj: Json) -> list[Cause]:
    """Errors of name, labels, annotations, finalizers and owner references, for every kind."""
    metadata = obj["metadata"]
    faults = _name_faults(resource, metadata["name"])
    for field in ("labels", "annotations"):
        faults += _map_faults(f"metadata.{field}", metadata.get(field), is_labels=field == "labels")
    for index, finalizer in enumerate(_items(metadata, "finalizers", faults)):
        field = f"metadata.finalizers[{index}]"
        if not isinstance(finalizer, str):
            faults.append(wrong_value(field, finalizer, "must be a string"))
        elif not resource.group and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            faults.append(wrong_value(field, finalizer, text))
    return faults + _owner_faults(_items(metadata, "ownerReferences", faults))


def _owner_faults(owners: list[Json]) -> list[Cause]:
    faults = [
        wrong_value(f"metadata.ownerReferences.{field}", "", "must not be empty")
        for owner in owners
        for field in ("apiVersion", "kind", "name", "uid")
        if not owner.get(field)
    ]
    controllers = [f"{owner.get('kind')}/{owner.get('name')}" for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        text = 'Only one reference can have Controller set to true. Found "true" in references for '
        order = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
        shown = json.encode([{field: owner[field] for field in order if field in owner} for owner in owners]).decode()
        found = f"Invalid value: {shown}: {text}{' and '.join(controllers[:2])}"
        faults.append(Cause("metadata.ownerReferences", found))
    return faults


def _items(metadata: Json, field: str, faults: list[Cause]) -> list[Any]:
    """The items of a list in metadata; adds an error when it is not a list."""
    items = metadata.get(field)
    if items is None or isinstance(items, list):
        return items or []
    faults.append(wrong_value(f"metadata.{field}", str(items), "must be a list"))
    return []


def _name_faults(resource: Resource, name: str) -> list[Cause]:
    field = "metadata.name"
    if resource.group == "rbac.authorization.k8s.io":
        is_fine = "/" not in name and "%" not in name and name not in {".", ".."}
        return [] if is_fine else [wrong_value(field, name, "may not contain '/' or '%'")]
    if resource.key == "services":
        pattern, text, longest = _DNS_1035, _DNS_1035_TEXT, 63
    elif resource.key == "namespaces":
        pattern, text, longest = _LABEL, _LABEL_TEXT, 63
    else:
        pattern, text, longest = _SUBDOMAIN, _SUBDOMAIN_TEXT, 253
    faults = [] if re.fullmatch(pattern, name) else [wrong_value(field, name, text)]
    if len(name) > longest:
        faults.append(wrong_value(field, name, f"must be no more than {longest} characters"))
    return faults


def _map_faults(field: str, texts: Any, *, is_labels: bool) -> list[Cause]:
    if not isinstance(texts, dict):
        return [] if texts is None else [wrong_value(field, str(texts), "must be an object")]
    faults = []
    for key, value in texts.items():
        prefix, _, name = key.rpartition("/")
        if not _LABEL_NAME.match(name) or len(name) > 63 or (prefix and not re.fullmatch(_SUBDOMAIN, prefix.lower())):
            faults.append(wrong_value(field, key, _LABEL_NAME_TEXT))
        if not isinstance(value, str):
            faults.append(wrong_value(f"{field}.{key}", value, "must be a string"))
        elif is_labels and (len(value) > 63 or not _LABEL_VALUE.match(value)):
            text = "must be no more than 63 bytes" if len(value) > 63 else _LABEL_VALUE_TEXT
            faults.append(wrong_value(field, value, text))
    return faults


def object_faults(resource: Resource, obj: Json) -> list[Cause]:
    """Errors in the spec of a pod, a pod template or a service."""
    spec = obj.get("spec") or {}
    if resource.key == "pods":
        _reject_unreadable(resource, spec)
        return pod_spec_faults(spec, "spec")
    if resource.key == "services":
        return _service_faults(spec)
    if resource.key in {"deployments.apps", "replicasets.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch"}:
        template = (spec.get("template") or {}).get("spec") or {}
        _reject_unreadable(resource, template)
        return pod_spec_faults(template, "spec.template.spec")
    return []


def pod_spec_faults(spec: Json, field: str) -> list[Cause]:
    """Errors of a pod spec; `field` is its path."""
    faults: list[Cause] = []
    if not spec.get("containers"):
        faults.append(required(f"{field}.containers"))
    policy = spec.get("restartPolicy")
    if policy not in _RESTART_POLICIES:
        faults.append(unsupported(f"{field}.restartPolicy", str(policy), _RESTART_POLICIES))
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    names: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or ()):
            place = f"{field}.{group}[{index}]"
            name = container.get("name") or ""
            if name in names:
                faults.append(Cause(f"{place}.name", f'Duplicate value: "{name}"', "FieldValueDuplicate"))
            names.add(name)
            faults += _container_faults(container, place, volumes)
    return faults


def _container_faults(container: Json, place: str, volumes: set[Any]) -> list[Cause]:
    faults: list[Cause] = []
    name = container.get("name")
    if not name:
        faults.append(required(f"{place}.name"))
    elif not re.fullmatch(_LABEL, name):
        faults.append(wrong_value(f"{place}.name", name, _LABEL_TEXT))
    if not container.get("image"):
        faults.append(required(f"{place}.image"))
    for index, port in enumerate(container.get("ports") or ()):
        faults += _port_faults(port.get("containerPort"), f"{place}.ports[{index}].containerPort")
    for index, variable in enumerate(container.get("env") or ()):
        if not variable.get("name"):
            faults.append(required(f"{place}.env[{index}].name"))
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            found = Cause(
                f"{place}.volumeMounts[{index}].name", f'Not found: "{mount.get("name")}"', "FieldValueNotFound"
            )
            faults.append(found)
    return faults + _resource_faults(container.get("resources") or {}, f"{place}.resources")


def _resource_faults(resources: Json, place: str) -> list[Cause]:
    limits = resources.get("limits") or {}
    return [
        wrong_value(f"{place}.requests", amount, f"must be less than or equal to {name} limit of {limits[name]}")
        for name, amount in (resources.get("requests") or {}).items()
        if name in limits and amount != limits[name] and Quantity.parse(amount) > Quantity.parse(limits[name])
    ]


def _reject_unreadable(resource: Resource, spec: Json) -> None:
    """400 for an invalid quantity, without its path, because a real server rejects it while decoding."""
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        for amounts in (resources.get("limits") or {}, resources.get("requests") or {}):
            if any(not _QUANTITY.match(str(amount)) for amount in amounts.values()):
                kind = resource.kind
                text = f'{kind} in version "{resource.version}" cannot be handled as a {kind}'
                raise bad_request(f"{text}: {_QUANTITY_TEXT}")


def _port_faults(port: Any, field: str) -> list[Cause]:
    if port is None:
        return [required(field)]
    if not isinstance(port, int) or not 1 <= port <= 65535:
        return [wrong_value(field, port, "must be between 1 and 65535, inclusive")]
    return []


def _service_faults(spec: Json) -> list[Cause]:
    kind = spec.get("type", "ClusterIP")
    if kind not in _SERVICE_TYPES:
        return [unsupported("spec.type", str(kind), _SERVICE_TYPES)]
    ports = spec.get("ports") or []
    faults: list[Cause] = []
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        faults.append(required("spec.ports"))
    for index, port in enumerate(ports):
        faults += _port_faults(port.get("port"), f"spec.ports[{index}].port")
        if len(ports) > 1 and not port.get("name"):
            faults.append(required(f"spec.ports[{index}].name"))
    return faults


_POD_CHANGE_TEXT: Final = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def update_faults(resource: Resource, old: Json, new: Json) -> list[Cause]:
    """Errors of changes to immutable fields."""
    if resource.key == "pods":
        before, after = _fixed_pod_spec(old["spec"]), _fixed_pod_spec(new.get("spec") or {})
        return [] if before == after else [Cause("spec", _POD_CHANGE_TEXT, "FieldValueForbidden")]
    if resource.key == "services":
        before, after = (obj["spec"].get("clusterIP") for obj in (old, new))
        if before and after and before != after:
            return [wrong_value("spec.clusterIPs[0]", after, "may not change once set")]
    return []


def _fixed_pod_spec(spec: Json) -> Json:
    free = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")
    fixed = {key: value for key, value in spec.items() if key not in free}
    for group in ("containers", "initContainers"):
        if group in fixed:
            fixed[group] = [{**container, "image": ""} for container in fixed[group]]
    return fixed
