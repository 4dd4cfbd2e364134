"""Environment variables and command line of a container.

Takes a container, its pod, the node's figures and the ConfigMaps and Secrets it refers to; returns the variables in the
order of the spec, with `$(NAME)` expanded from earlier variables and `$$` as one dollar sign. A missing reference that
is not optional raises `ConfigMissingError` with the kubelet's message (CreateContainerConfigError). Pure: the caller has
read the objects named by `references`.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from raytide.api.quantity import Quantity, QuantityError
from raytide_sandbox.kubelet.podspec import ContainerSpec, Manifest, PodSpec, PodSpecError, mappings, text

_REFERENCE: Final = re.compile(r"\$\$|\$\(([^()]+)\)")
_VARIABLE_NAME: Final = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*\Z")
_SUBSCRIPT: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]\Z")

CONFIG_MAP: Final = "configmap"
SECRET: Final = "secret"  # noqa: S105 - a kind, not a password
CLAIM: Final = "persistentvolumeclaim"
VOLUME: Final = "persistentvolume"


class ConfigMissingError(Exception):
    """A ConfigMap, Secret, key or field that the container needs does not exist (yet)."""


Source = tuple[str, str]
"""Kind in lower case and name, in the pod's namespace if the kind has one."""
Sources = Mapping[Source, Manifest | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFigures:
    """Address and allocatable resources of the node, for the downward API."""

    host_ip: str
    allocatable: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSurroundings:
    """Pod IP, node figures and API server address, for the environment and the downward API."""

    pod_ip: str
    node: NodeFigures
    service_host: str
    service_port: int


def references(container: ContainerSpec) -> frozenset[Source]:
    """The ConfigMaps and Secrets that the container's environment refers to."""
    wanted = {_source_of(kind, entry[field]) for entry, field, kind in _imports(container)}
    for variable in mappings(container.raw.get("env"), "env"):
        origin = _mapping(variable.get("valueFrom"))
        for field, kind in (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET)):
            if field in origin:
                wanted.add(_source_of(kind, origin[field]))
    return frozenset(wanted)


def build_environment(
    pod: PodSpec, container: ContainerSpec, surroundings: PodSurroundings, sources: Sources
) -> dict[str, str]:
    """Build every variable of the container; raises ConfigMissingError and PodSpecError."""
    found: dict[str, str] = kubernetes_variables(surroundings)
    for entry, field, kind in _imports(container):
        found |= _imported(entry, kind, _mapping(entry[field]), sources)
    for variable in mappings(container.raw.get("env"), "env"):
        name, value = text(variable.get("name")), _value(variable, pod, container, surroundings, sources, found)
        if value is not None:
            found[name] = value
    return found


def kubernetes_variables(surroundings: PodSurroundings) -> dict[str, str]:
    """Variables from which a client in the pod finds the API server."""
    host, port = surroundings.service_host, str(surroundings.service_port)
    url = f"tcp://{host}:{port}"
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
        "KUBERNETES_PORT": url,
        f"KUBERNETES_PORT_{port}_TCP": url,
        f"KUBERNETES_PORT_{port}_TCP_PROTO": "tcp",
        f"KUBERNETES_PORT_{port}_TCP_PORT": port,
        f"KUBERNETES_PORT_{port}_TCP_ADDR": host,
    }


def expand(template: str, environment: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value and `$$` by `$`; an unknown name stays as written."""
    return _REFERENCE.sub(
        lambda found: "$" if found[0] == "$$" else environment.get(found[1], found[0]),
        template,
    )


def build_argv(
    container: ContainerSpec,
    environment: Mapping[str, str],
    *,
    entrypoint: Sequence[str] = (),
    image_command: Sequence[str] = (),
) -> tuple[str, ...]:
    """Command and arguments with variables expanded; the image's entrypoint and command are the defaults."""
    command, args = container.command or tuple(entrypoint), container.args
    if not container.command and not container.args:
        args = tuple(image_command)
    return tuple(expand(word, environment) for word in (*command, *args))


# --- one variable --------------------------------------------------------------------------------------------------
def _value(  # noqa: PLR0917 - the whole context of one variable
    variable: Manifest,
    pod: PodSpec,
    container: ContainerSpec,
    surroundings: PodSurroundings,
    sources: Sources,
    found: Mapping[str, str],
) -> str | None:
    origin = _mapping(variable.get("valueFrom"))
    if "fieldRef" in origin:
        return field_value(text(_mapping(origin["fieldRef"]).get("fieldPath")), pod, surroundings)
    if "resourceFieldRef" in origin:
        return resource_value(_mapping(origin["resourceFieldRef"]), pod, container, surroundings.node)
    if "configMapKeyRef" in origin:
        return _key(CONFIG_MAP, _mapping(origin["configMapKeyRef"]), sources, pod)
    if "secretKeyRef" in origin:
        return _key(SECRET, _mapping(origin["secretKeyRef"]), sources, pod)
    if origin:
        raise ConfigMissingError(
            f"environment variable {text(variable.get('name'))}: valueFrom {sorted(origin)} is unknown"
        )
    return expand(text(variable.get("value")), found)


def _key(kind: str, reference: Manifest, sources: Sources, pod: PodSpec) -> str | None:
    name, key = text(reference.get("name")), text(reference.get("key"))
    is_optional = reference.get("optional") is True
    source = sources.get((kind, name))
    if source is None:
        if is_optional:
            return None
        raise ConfigMissingError(f'{kind} "{name}" not found')
    entries = decode_entries(kind, source)
    if key in entries:
        return entries[key].decode(errors="replace")
    if is_optional:
        return None
    raise ConfigMissingError(f"couldn't find key {key} in {_KIND_NAMES[kind]} {pod.namespace}/{name}")


def _imported(entry: Manifest, kind: str, reference: Manifest, sources: Sources) -> dict[str, str]:
    name, prefix = text(reference.get("name")), text(entry.get("prefix"))
    source = sources.get((kind, name))
    if source is None:
        if reference.get("optional") is True:
            return {}
        raise ConfigMissingError(f'{kind} "{name}" not found')
    every = {prefix + key: content for key, content in decode_entries(kind, source).items()}
    return {key: content.decode(errors="replace") for key, content in every.items() if _VARIABLE_NAME.match(key)}


_KIND_NAMES: Final = {CONFIG_MAP: "ConfigMap", SECRET: "Secret"}
_IMPORT_FIELDS: Final = (("configMapRef", CONFIG_MAP), ("secretRef", SECRET))


def _imports(container: ContainerSpec) -> list[tuple[Manifest, str, str]]:
    entries = mappings(container.raw.get("envFrom"), "envFrom")
    return [(entry, field, kind) for entry in entries for field, kind in _IMPORT_FIELDS if entry.get(field)]


def _source_of(kind: str, reference: object) -> Source:
    return kind, text(_mapping(reference).get("name"))


def _mapping(value: object) -> Manifest:
    return value if isinstance(value, Mapping) else {}


def decode_entries(kind: str, source: Manifest) -> dict[str, bytes]:
    """Content of a ConfigMap or Secret by key."""
    encoded = _mapping(source.get("binaryData" if kind == CONFIG_MAP else "data"))
    plain = _mapping(source.get("data" if kind == CONFIG_MAP else "stringData"))
    entries = {str(key): base64.b64decode(text(value)) for key, value in encoded.items()}
    return entries | {str(key): text(value).encode() for key, value in plain.items()}


# --- fields and resources ------------------------------------------------------------------------------------------
def field_value(path: str, pod: PodSpec, surroundings: PodSurroundings) -> str:
    """Value of a downward API fieldRef; raises ConfigMissingError for an unsupported path."""
    if found := _SUBSCRIPT.match(path):
        return (pod.labels if found[1] == "labels" else pod.annotations).get(found[2], "")
    if path in {"metadata.labels", "metadata.annotations"}:
        return format_map(pod.labels if path.endswith("labels") else pod.annotations)
    values = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "spec.nodeName": pod.node_name,
        "spec.serviceAccountName": pod.service_account,
        "status.hostIP": surroundings.node.host_ip,
        "status.hostIPs": surroundings.node.host_ip,
        "status.podIP": surroundings.pod_ip,
        "status.podIPs": surroundings.pod_ip,
    }
    if path not in values:
        raise ConfigMissingError(f"unsupported fieldPath: {path}")
    return values[path]


def format_map(entries: Mapping[str, str]) -> str:
    """Labels or annotations as the downward API writes them: sorted, one `key="value"` a line."""
    return "\n".join(f'{key}="{_go_quoted(value)}"' for key, value in sorted(entries.items()))


def _go_quoted(value: str) -> str:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return quoted.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def resource_value(reference: Manifest, pod: PodSpec, container: ContainerSpec, node: NodeFigures) -> str:
    """A request or limit in units of the divisor, rounded up; a missing limit is the node's allocatable."""
    wanted = text(reference.get("containerName"))
    target = pod.container(wanted) if wanted else container
    kind, _, resource = text(reference.get("resource")).partition(".")
    if target is None or kind not in {"limits", "requests"} or not resource:
        raise ConfigMissingError(f"resourceFieldRef {dict(reference)!r} names no container or resource")
    amount = _mapping(_mapping(target.raw.get("resources")).get(kind)).get(resource)
    if amount is None:
        amount = node.allocatable.get(resource, "0") if kind == "limits" else "0"
    return str(_divided(amount, reference.get("divisor")))


def _divided(amount: Any, divisor: Any) -> int:
    try:
        unit = Quantity.parse(divisor or "1").nanos or Quantity.parse("1").nanos
        return -(-Quantity.parse(amount).nanos // unit)
    except QuantityError as error:
        raise PodSpecError(str(error)) from error
