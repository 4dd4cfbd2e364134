"""Pod spec of the kubelet, parsed from an API object.

Takes a raw pod and returns frozen values with defaults filled in and every name a string. A scalar that YAML parsed as
another type (a container named `false`, a number as an environment value) is converted to what the author meant; an
invalid value raises `PodSpecError`, whose message names the field or the value. Called by the kubelet when it builds the
worker of a pod; environment and volumes stay raw here and are parsed when they are needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

Manifest = Mapping[str, Any]

DEFAULT_GRACE_S: Final = 30
DEFAULT_TERMINATION_MESSAGE_PATH: Final = "/dev/termination-log"


class PodSpecError(ValueError):
    """The pod spec has an invalid value; the message names the field or the value."""


class RestartPolicy(StrEnum):
    """Restart policy of a pod or of a container."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


@dataclass(frozen=True, slots=True)
class ExecAction:
    """Run a command in the container."""

    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HttpAction:
    """HTTP GET of a path; status 200–399 is success."""

    port: int | str
    path: str = "/"
    scheme: str = "HTTP"
    host: str | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TcpAction:
    """Open a TCP connection."""

    port: int | str


@dataclass(frozen=True, slots=True)
class GrpcAction:
    """Call the standard gRPC health service."""

    port: int
    service: str = ""


@dataclass(frozen=True, slots=True)
class SleepAction:
    """Sleep (lifecycle hooks only)."""

    seconds: int


Action = ExecAction | HttpAction | TcpAction | GrpcAction | SleepAction


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSpec:
    """One probe of a container."""

    action: Action
    initial_delay_s: int = 0
    period_s: int = 10
    timeout_s: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    grace_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """One container; `raw` is the API object, for environment, mounts and resources."""

    name: str
    image: str = ""
    image_pull_policy: str = "IfNotPresent"
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str | None = None
    ports: tuple[tuple[str, int], ...] = ()
    startup: ProbeSpec | None = None
    readiness: ProbeSpec | None = None
    liveness: ProbeSpec | None = None
    post_start: Action | None = None
    pre_stop: Action | None = None
    is_init: bool = False
    is_sidecar: bool = False
    """An init container with restartPolicy Always: it starts in init order and keeps running."""
    termination_message_path: str = DEFAULT_TERMINATION_MESSAGE_PATH
    has_log_as_message: bool = False
    has_stdin: bool = False
    is_tty: bool = False
    raw: Manifest

    @property
    def probes(self) -> Mapping[str, ProbeSpec]:
        """The probes of the container by kind."""
        every = {"startup": self.startup, "readiness": self.readiness, "liveness": self.liveness}
        return {kind: probe for kind, probe in every.items() if probe}

    def port_number(self, port: int | str) -> int:
        """A port given by number or by name; raises PodSpecError when no port has that name."""
        if isinstance(port, int):
            return port
        if port.isdecimal():
            return int(port)
        for name, number in self.ports:
            if name == port:
                return number
        raise PodSpecError(f"container {self.name} has no port named {port}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec:
    """A pod; `raw` is the latest API object."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    node_name: str
    service_account: str
    restart_policy: RestartPolicy
    init_containers: tuple[ContainerSpec, ...]
    containers: tuple[ContainerSpec, ...]
    grace_s: int
    active_deadline_s: int | None
    hostname: str
    subdomain: str
    host_aliases: tuple[tuple[str, tuple[str, ...]], ...]
    readiness_gates: tuple[str, ...]
    volumes: tuple[Manifest, ...]
    raw: Manifest

    @property
    def all_containers(self) -> tuple[ContainerSpec, ...]:
        """Init containers, then app containers, each in spec order."""
        return self.init_containers + self.containers

    @property
    def full_name(self) -> str:
        """Name of the pod in a kubelet's messages."""
        return f"{self.name}_{self.namespace}({self.uid})"

    def container(self, name: str) -> ContainerSpec | None:
        """The init or app container of that name; None when there is none."""
        return next((c for c in self.all_containers if c.name == name), None)

    @property
    def default_container(self) -> str:
        """Name of the default container for logs and exec."""
        wanted = self.annotations.get("kubectl.kubernetes.io/default-container", "")
        return wanted if self.container(wanted) else self.containers[0].name

    def policy_of(self, container: ContainerSpec) -> RestartPolicy:
        """Effective restart policy: a sidecar always restarts, another init container never after success."""
        if container.is_sidecar:
            return RestartPolicy.ALWAYS
        if container.is_init and self.restart_policy is RestartPolicy.ALWAYS:
            return RestartPolicy.ON_FAILURE
        return self.restart_policy


def read_pod(raw: Manifest) -> PodSpec:
    """Parse a pod; raises PodSpecError."""
    metadata, spec = _mapping(raw.get("metadata"), "metadata"), _mapping(raw.get("spec"), "spec")
    containers = _containers(spec.get("containers"), "spec.containers", is_init=False)
    if not containers:
        raise PodSpecError("spec.containers is empty")
    inits = _containers(spec.get("initContainers"), "spec.initContainers", is_init=True)
    _reject_duplicates([c.name for c in inits + containers])
    name = text(metadata.get("name"))
    return PodSpec(
        namespace=text(metadata.get("namespace"), "default"),
        name=name,
        uid=text(metadata.get("uid")),
        labels=_texts(metadata.get("labels"), "metadata.labels"),
        annotations=_texts(metadata.get("annotations"), "metadata.annotations"),
        node_name=text(spec.get("nodeName")),
        service_account=text(spec.get("serviceAccountName")) or "default",
        restart_policy=_restart_policy(spec.get("restartPolicy")),
        init_containers=inits,
        containers=containers,
        grace_s=integer(spec.get("terminationGracePeriodSeconds"), DEFAULT_GRACE_S),
        active_deadline_s=_optional_integer(spec.get("activeDeadlineSeconds")),
        hostname=(text(spec.get("hostname")) or name)[:63].rstrip("-."),
        subdomain=text(spec.get("subdomain")),
        host_aliases=tuple(
            (text(alias.get("ip")), tuple(text(h) for h in alias.get("hostnames") or ()))
            for alias in mappings(spec.get("hostAliases"), "spec.hostAliases")
        ),
        readiness_gates=tuple(
            text(gate.get("conditionType")) for gate in mappings(spec.get("readinessGates"), "spec.readinessGates")
        ),
        volumes=mappings(spec.get("volumes"), "spec.volumes"),
        raw=raw,
    )


# --- scalars that YAML may have parsed as another type -------------------------------------------------------------
def text(value: object, default: str = "") -> str:
    """A value as a string, also when YAML parsed it as a boolean or a number; raises PodSpecError."""
    if value is None:
        return default
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise PodSpecError(f"expected a string, found {value!r}")


def integer(value: object, default: int) -> int:
    """A whole number, also when written as a string; raises PodSpecError."""
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        return int(str(value))
    except ValueError:
        raise PodSpecError(f"expected a whole number, found {value!r}") from None


def mappings(value: object, path: str) -> tuple[Manifest, ...]:
    """A list of objects, empty when absent; raises PodSpecError."""
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(v, Mapping) for v in value):
        raise PodSpecError(f"{path} is not a list of objects")
    return tuple(value)


def _optional_integer(value: object) -> int | None:
    return None if value is None else integer(value, 0)


def _mapping(value: object, path: str) -> Manifest:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise PodSpecError(f"{path} is not an object")
    return value


def _texts(value: object, path: str) -> dict[str, str]:
    return {text(k): text(v) for k, v in _mapping(value, path).items()}


def _argv(value: object, path: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise PodSpecError(f"{path} is not a list")
    return tuple(text(v) for v in value)


# --- containers ----------------------------------------------------------------------------------------------------
def _restart_policy(value: object) -> RestartPolicy:
    try:
        return RestartPolicy(text(value) or RestartPolicy.ALWAYS)
    except ValueError:
        raise PodSpecError(f"spec.restartPolicy {value!r} is none of Always, OnFailure, Never") from None


def _reject_duplicates(names: list[str]) -> None:
    for name in names:
        if not name:
            raise PodSpecError("a container has no name")
        if names.count(name) > 1:
            raise PodSpecError(f"two containers are named {name}")


def _containers(value: object, path: str, *, is_init: bool) -> tuple[ContainerSpec, ...]:
    return tuple(_container(raw, f"{path}[{i}]", is_init=is_init) for i, raw in enumerate(mappings(value, path)))


def _container(raw: Manifest, path: str, *, is_init: bool) -> ContainerSpec:
    hooks = _mapping(raw.get("lifecycle"), f"{path}.lifecycle")
    for part, amounts in _mapping(raw.get("resources"), f"{path}.resources").items():
        if part in {"limits", "requests"}:
            _mapping(amounts, f"{path}.resources.{part}")
    ports = mappings(raw.get("ports"), f"{path}.ports")
    return ContainerSpec(
        name=text(raw.get("name")),
        image=text(raw.get("image")),
        image_pull_policy=text(raw.get("imagePullPolicy")) or "IfNotPresent",
        command=_argv(raw.get("command"), f"{path}.command"),
        args=_argv(raw.get("args"), f"{path}.args"),
        working_dir=text(raw.get("workingDir")) or None,
        ports=tuple((text(port.get("name")), integer(port.get("containerPort"), 0)) for port in ports),
        startup=_probe(raw.get("startupProbe"), f"{path}.startupProbe"),
        readiness=_probe(raw.get("readinessProbe"), f"{path}.readinessProbe"),
        liveness=_probe(raw.get("livenessProbe"), f"{path}.livenessProbe"),
        post_start=_hook(hooks.get("postStart"), f"{path}.lifecycle.postStart"),
        pre_stop=_hook(hooks.get("preStop"), f"{path}.lifecycle.preStop"),
        is_init=is_init,
        is_sidecar=is_init and text(raw.get("restartPolicy")) == RestartPolicy.ALWAYS,
        termination_message_path=text(raw.get("terminationMessagePath")) or DEFAULT_TERMINATION_MESSAGE_PATH,
        has_log_as_message=text(raw.get("terminationMessagePolicy")) == "FallbackToLogsOnError",
        has_stdin=raw.get("stdin") is True,
        is_tty=raw.get("tty") is True,
        raw=raw,
    )


def _probe(value: object, path: str) -> ProbeSpec | None:
    raw = _mapping(value, path)
    action = _action(raw, path)
    if action is None:
        if value is not None:
            raise PodSpecError(f"{path} says neither exec, httpGet, tcpSocket nor grpc")
        return None
    return ProbeSpec(
        action=action,
        initial_delay_s=max(0, integer(raw.get("initialDelaySeconds"), 0)),
        period_s=max(1, integer(raw.get("periodSeconds") or None, 10)),
        timeout_s=max(1, integer(raw.get("timeoutSeconds") or None, 1)),
        success_threshold=max(1, integer(raw.get("successThreshold") or None, 1)),
        failure_threshold=max(1, integer(raw.get("failureThreshold") or None, 3)),
        grace_s=_optional_integer(raw.get("terminationGracePeriodSeconds")),
    )


def _hook(value: object, path: str) -> Action | None:
    raw = _mapping(value, path)
    if "sleep" in raw:
        return SleepAction(integer(_mapping(raw["sleep"], f"{path}.sleep").get("seconds"), 0))
    return _action(raw, path)


def _action(raw: Manifest, path: str) -> Action | None:
    if raw.get("exec") is not None:
        return ExecAction(_argv(_mapping(raw["exec"], f"{path}.exec").get("command"), f"{path}.exec.command"))
    if raw.get("httpGet") is not None:
        return _http_action(_mapping(raw["httpGet"], f"{path}.httpGet"), f"{path}.httpGet")
    if raw.get("tcpSocket") is not None:
        return TcpAction(_port(_mapping(raw["tcpSocket"], f"{path}.tcpSocket").get("port"), f"{path}.tcpSocket.port"))
    if raw.get("grpc") is not None:
        grpc = _mapping(raw["grpc"], f"{path}.grpc")
        return GrpcAction(integer(grpc.get("port"), 0), text(grpc.get("service")))
    return None


def _http_action(raw: Manifest, path: str) -> HttpAction:
    headers = mappings(raw.get("httpHeaders"), f"{path}.httpHeaders")
    target = text(raw.get("path")) or "/"
    return HttpAction(
        port=_port(raw.get("port"), f"{path}.port"),
        path=target if target.startswith("/") else f"/{target}",
        scheme=(text(raw.get("scheme")) or "HTTP").upper(),
        host=text(raw.get("host")) or None,
        headers=tuple((text(h.get("name")), text(h.get("value"))) for h in headers),
    )


def _port(value: object, path: str) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    name = text(value)
    if not name:
        raise PodSpecError(f"{path} is missing")
    return name
