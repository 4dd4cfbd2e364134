"""`kubectl get` columns and rows of built-in kinds.

One `Printer` per kind has the columns and a function that makes a row of an object. The pod printer follows the real
one closely (STATUS is Init:0/1, CrashLoopBackOff, Completed, Terminating, …); the others print the usual columns. Pure;
ages are relative to `now`. Called by `tables.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from raytide_sandbox.apiserver.printing import podprinter
from raytide_sandbox.rfc3339 import parse_time

Json = dict[str, Any]
Cells = list[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; priority 1 is shown only with `-o wide`."""

    name: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Printer:
    """The columns of a kind and the function that makes its rows."""

    columns: tuple[Column, ...]
    row: Callable[[Json, datetime], Cells]


def _printer(columns: str, row: Callable[[Json, datetime], Cells]) -> Printer:
    """Parse columns such as `Name|Ready|IP+`; a trailing + means only with `-o wide`."""
    parsed = tuple(Column(text.rstrip("+"), priority=int(text.endswith("+"))) for text in columns.split("|"))
    return Printer(parsed, row)


# --- ages ------------------------------------------------------------------------------------------------------------
def age(text: Any, now: datetime) -> str:
    """The age in kubectl's format: 45s, 3m20s, 26h, 5d."""
    since = parse_time(text)
    return "<unknown>" if since is None else duration((now - since).total_seconds())


def duration(seconds: float) -> str:
    """Format seconds like HumanDuration of apimachinery."""
    if seconds < -1:
        return "<invalid>"
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    years = days // 365
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def _created(obj: Json, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _name(obj: Json) -> str:
    name: str = obj["metadata"]["name"]
    return name


def _joined(values: Any) -> str:
    return ",".join(str(value) for value in values or ()) or "<none>"


def _labels(labels: Any) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or "<none>"


# --- rows ------------------------------------------------------------------------------------------------------------
def _pod(obj: Json, now: datetime) -> Cells:
    shown = podprinter.summary(obj)
    restarts = str(shown.restarts)
    last = parse_time(shown.last_restart)
    if shown.restarts and last is not None:
        restarts += f" ({duration((now - last).total_seconds())} ago)"
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    gates = spec.get("readinessGates") or ()
    conditions = {item.get("type"): item.get("status") for item in status.get("conditions") or ()}
    passed = sum(1 for gate in gates if conditions.get(gate.get("conditionType")) == "True")
    return [
        _name(obj),
        f"{shown.ready}/{shown.total}",
        shown.reason,
        restarts,
        _created(obj, now),
        _joined(
            [address["ip"] for address in status.get("podIPs") or ()] or [status["podIP"]]
            if status.get("podIP")
            else ()
        ),
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        f"{passed}/{len(gates)}" if gates else "<none>",
    ]


def _node(obj: Json, now: datetime) -> Cells:
    status, spec, labels = obj.get("status") or {}, obj.get("spec") or {}, obj["metadata"].get("labels") or {}
    ready = next((item for item in status.get("conditions") or () if item.get("type") == "Ready"), None)
    words = ["Unknown"] if ready is None else ["Ready" if ready.get("status") == "True" else "NotReady"]
    if spec.get("unschedulable"):
        words.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    system = status.get("nodeInfo") or {}
    addresses = {item.get("type"): item.get("address") for item in status.get("addresses") or ()}
    return [
        _name(obj),
        ",".join(words),
        _joined(roles),
        _created(obj, now),
        system.get("kubeletVersion", ""),
        addresses.get("InternalIP") or "<none>",
        addresses.get("ExternalIP") or "<none>",
        system.get("osImage") or "<unknown>",
        system.get("kernelVersion") or "<unknown>",
        system.get("containerRuntimeVersion") or "<unknown>",
    ]


def _service(obj: Json, now: datetime) -> Cells:
    spec = obj.get("spec") or {}
    ports = []
    for port in spec.get("ports") or ():
        number = f"{port['port']}:{port['nodePort']}" if port.get("nodePort") else str(port["port"])
        ports.append(f"{number}/{port.get('protocol', 'TCP')}")
    external = _joined(spec.get("externalIPs"))
    if spec.get("type") == "LoadBalancer":
        ingress = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        external = _joined(item.get("ip") or item.get("hostname") for item in ingress)
        external = "<pending>" if external == "<none>" else external
    elif spec.get("type") == "ExternalName":
        external = spec.get("externalName", "")
    row = [_name(obj), spec.get("type", "ClusterIP"), spec.get("clusterIP") or "<none>", external]
    return [*row, _joined(ports), _created(obj, now), _labels(spec.get("selector"))]


def _event(obj: Json, now: datetime) -> Cells:
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    series = obj.get("series") or {}
    first = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp") or obj.get("eventTime")
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp") or first
    count = series.get("count") or obj.get("count") or obj.get("deprecatedCount") or 1
    source = (obj.get("source") or obj.get("deprecatedSource") or {}).get("component")
    text = (obj.get("message") or obj.get("note") or "").strip()
    target = f"{about.get('kind', '').lower()}/{about.get('name', '')}"
    component = source or obj.get("reportingComponent") or obj.get("reportingController") or ""
    row = [age(last, now), obj.get("type", ""), obj.get("reason", ""), target, about.get("fieldPath", "")]
    return [*row, component, text, age(first, now), count, _name(obj)]


def _namespace(obj: Json, now: datetime) -> Cells:
    return [_name(obj), (obj.get("status") or {}).get("phase", ""), _created(obj, now)]


def _config_map(obj: Json, now: datetime) -> Cells:
    return [_name(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), _created(obj, now)]


def _secret(obj: Json, now: datetime) -> Cells:
    return [_name(obj), obj.get("type", ""), len(obj.get("data") or ()), _created(obj, now)]


def _service_account(obj: Json, now: datetime) -> Cells:
    return [_name(obj), len(obj.get("secrets") or ()), _created(obj, now)]


def _lease(obj: Json, now: datetime) -> Cells:
    return [_name(obj), (obj.get("spec") or {}).get("holderIdentity", ""), _created(obj, now)]


def _endpoints(obj: Json, now: datetime) -> Cells:
    shown = [
        f"{address['ip']}:{port['port']}"
        for subset in obj.get("subsets") or ()
        for port in subset.get("ports") or ()
        for address in subset.get("addresses") or ()
    ]
    text = ",".join(shown[:3]) + (f" + {len(shown) - 3} more..." if len(shown) > 3 else "")
    return [_name(obj), text or "<none>", _created(obj, now)]


def _deployment(obj: Json, now: datetime) -> Cells:
    status, wanted = obj.get("status") or {}, (obj.get("spec") or {}).get("replicas", 0)
    ready = f"{status.get('readyReplicas', 0)}/{wanted}"
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    return [_name(obj), ready, *counts, _created(obj, now)]


def _job(obj: Json, now: datetime) -> Cells:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    conditions = {item.get("type") for item in status.get("conditions") or () if item.get("status") == "True"}
    word = next((name for name in ("Complete", "Failed", "Suspended") if name in conditions), "Running")
    started, ended = parse_time(status.get("startTime")), parse_time(status.get("completionTime"))
    took = "" if started is None else duration(((ended or now) - started).total_seconds())
    completions = f"{status.get('succeeded', 0)}/{spec.get('completions', 1)}"
    return [_name(obj), word, completions, took, _created(obj, now)]


def _claim(obj: Json, now: datetime) -> Cells:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    capacity = (status.get("capacity") or {}).get("storage", "")
    modes = ",".join(spec.get("accessModes") or ())
    row = [_name(obj), status.get("phase", "Pending"), spec.get("volumeName", ""), capacity, modes]
    return [*row, spec.get("storageClassName", ""), _created(obj, now)]


def _ingress(obj: Json, now: datetime) -> Cells:
    spec = obj.get("spec") or {}
    hosts = [rule.get("host") or "*" for rule in spec.get("rules") or ()]
    found = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    address = ",".join(item.get("ip") or item.get("hostname") or "" for item in found)
    ports = "80, 443" if spec.get("tls") else "80"
    return [
        _name(obj),
        spec.get("ingressClassName") or "<none>",
        ",".join(hosts) or "*",
        address,
        ports,
        _created(obj, now),
    ]


def _definition(obj: Json, _now: datetime) -> Cells:
    return [_name(obj), obj["metadata"].get("creationTimestamp")]


def _binding(obj: Json, now: datetime) -> Cells:
    role = obj.get("roleRef") or {}
    return [_name(obj), f"{role.get('kind', '')}/{role.get('name', '')}", _created(obj, now)]


PRINTERS: Final[dict[str, Printer]] = {
    "pods": _printer("Name|Ready|Status|Restarts|Age|IP+|Node+|Nominated Node+|Readiness Gates+", _pod),
    "nodes": _printer(
        "Name|Status|Roles|Age|Version|Internal-IP+|External-IP+|OS-Image+|Kernel-Version+|Container-Runtime+", _node
    ),
    "services": _printer("Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector+", _service),
    "events": _printer("Last Seen|Type|Reason|Object|Subobject+|Source+|Message|First Seen+|Count+|Name+", _event),
    "namespaces": _printer("Name|Status|Age", _namespace),
    "configmaps": _printer("Name|Data|Age", _config_map),
    "secrets": _printer("Name|Type|Data|Age", _secret),
    "serviceaccounts": _printer("Name|Secrets|Age", _service_account),
    "leases.coordination.k8s.io": _printer("Name|Holder|Age", _lease),
    "endpoints": _printer("Name|Endpoints|Age", _endpoints),
    "deployments.apps": _printer("Name|Ready|Up-to-date|Available|Age", _deployment),
    "jobs.batch": _printer("Name|Status|Completions|Duration|Age", _job),
    "persistentvolumeclaims": _printer("Name|Status|Volume|Capacity|Access Modes|StorageClass|Age", _claim),
    "ingresses.networking.k8s.io": _printer("Name|Class|Hosts|Address|Ports|Age", _ingress),
    "customresourcedefinitions.apiextensions.k8s.io": _printer("Name|Created At", _definition),
    "rolebindings.rbac.authorization.k8s.io": _printer("Name|Role|Age", _binding),
    "clusterrolebindings.rbac.authorization.k8s.io": _printer("Name|Role|Age", _binding),
}
