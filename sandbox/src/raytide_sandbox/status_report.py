"""The status of the running sandbox.

Takes the state directory and the record of the running process, lists nodes and pods through its API, and returns an
`Overview`; `render` prints it. It only reads and waits at most two seconds per request; an API that does not answer is
reported in the `Overview`, not raised. Called by `raytide sandbox status`.
"""

import base64
import json
import ssl
import urllib.request
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import yaml

from raytide_sandbox.state_dir import Record, StateDirectory, uptime_s

PATIENCE_S: Final = 2.0
_APIS: Final = {
    "embedded": "embedded: the emulator",
    "kubernetes": "kubernetes: etcd, kube-apiserver, kube-controller-manager, kube-scheduler",
}
_PLACES: Final = {"embedded": "in memory", "kubernetes": "in etcd"}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Overview:
    """The content of `status`; `trouble` is the reason why the API could not be queried."""

    record: Record
    state: StateDirectory
    uptime_s: float
    nodes: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    error: str | None = None


def take(state: StateDirectory, record: Record) -> Overview:
    """Query the API and return the overview."""
    up_s = uptime_s(record)
    try:
        config = yaml.safe_load(state.kubeconfig.read_text())
        nodes = _ask(config, "/api/v1/nodes")
        pods = _ask(config, "/api/v1/pods")
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        return Overview(record, state, up_s, error=f"the API does not answer: {error}")
    return Overview(record, state, up_s, tuple(nodes), tuple(pods))


def _ask(config: Json, path: str) -> list[Json]:
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    request = urllib.request.Request(cluster["server"] + path, headers={"Authorization": f"Bearer {user['token']}"})  # noqa: S310 - our own https URL
    context = ssl.create_default_context(cadata=authority)
    with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:  # noqa: S310 - same
        items: list[Json] = json.load(answer)["items"]
        return items


def render(overview: Overview) -> None:
    """Print the overview in two columns."""
    from rich.console import Console  # noqa: PLC0415 - only people need it
    from rich.table import Table  # noqa: PLC0415 - same

    table = Table.grid(padding=(0, 3))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows(overview):
        table.add_row(name, value)
    Console(highlight=False).print(table)


def as_json(overview: Overview | None) -> Json:
    """The status for programs; None: no sandbox is running, or it is still starting."""
    if overview is None:
        return {"running": False}
    record, answers = overview.record, overview.error is None
    return {
        "running": True,
        "version": record.version,
        "uptimeSeconds": int(overview.uptime_s),
        "pid": record.pid,
        "server": record.server,
        "api": record.api,
        "isolation": record.isolation,
        "isolationReason": record.isolation_reason,
        "error": overview.error,
        "nodes": [_node_json(node) for node in overview.nodes] if answers else None,
        "pods": dict(sorted(_phases(overview.pods).items())) if answers else None,
        "auditLog": record.audit_log or None,
        "kubeconfig": str(overview.state.kubeconfig),
        "stateDirectory": str(overview.state.path),
    }


def written(document: Json, output: str) -> str:
    """The document as `json` or `yaml`."""
    if output == "json":
        return json.dumps(document, indent=2)
    return str(yaml.safe_dump(document, sort_keys=False)).rstrip()


def _node_json(node: Json) -> Json:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    name = (node.get("metadata") or {}).get("name", "")
    return {"name": name, "cpu": allocatable.get("cpu"), "memory": allocatable.get("memory")}


def rows(overview: Overview) -> list[tuple[str, str]]:
    """The name and the text of each line."""
    record = overview.record
    lines = [
        ("sandbox", f"raytide {record.version}, up {_duration(overview.uptime_s)}, process {record.pid}"),
        ("server", record.server),
        ("api", _APIS.get(record.api, record.api)),
        ("isolation", record.isolation_reason),
    ]
    if overview.error is not None:
        lines.append(("trouble", overview.error))
    else:
        lines += [("nodes", _nodes(overview.nodes)), ("pods", _pods(overview.pods))]
    if record.audit_log:
        lines.append(("audit log", record.audit_log))
    return [
        *lines,
        ("kubeconfig", str(overview.state.kubeconfig)),
        ("state", f"{overview.state.path} (objects are {_PLACES.get(record.api, 'in it')}, gone after `down`)"),
    ]


def _nodes(nodes: tuple[Json, ...]) -> str:
    shapes = Counter(
        f"{node['status']['allocatable']['cpu']} CPU, {node['status']['allocatable']['memory']}"
        for node in nodes
        if (node.get("status") or {}).get("allocatable")
    )
    lines = "; ".join(f"{count} × {shape}" for shape, count in shapes.items())
    return f"{lines} (for scheduling only, not enforced)" if lines else "none"


def _pods(pods: tuple[Json, ...]) -> str:
    lines = ", ".join(f"{count} {phase}" for phase, count in sorted(_phases(pods).items()))
    return lines or "none"


def _phases(pods: tuple[Json, ...]) -> Counter[str]:
    return Counter((pod.get("status") or {}).get("phase", "Unknown") for pod in pods)


def _duration(seconds: float) -> str:
    whole = int(seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole >= 2 * length:
            return f"{whole // length}{unit}"
    return f"{whole}s"
