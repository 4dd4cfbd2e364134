"""Node fit: resource requests and the filters of the scheduler.

Takes pods and nodes as raw objects; returns exact sums of requests, the reasons of the first filter that rejects a
node, and the message that Kubernetes' scheduler writes for an unschedulable pod. It reads only its arguments and
changes nothing but a node's `taken`. Called by scheduler.py for each pod it tries to place.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raytide.api.quantity import to_millis

Requests = dict[str, int]
"""Amounts per resource name in thousandths, so that millicores are integers."""

PODS: Final = "pods"
UNSCHEDULABLE: Final = "node(s) were unschedulable"
WRONG_NODE: Final = "node(s) didn't match the requested node name"
NO_AFFINITY: Final = "node(s) didn't match Pod's node affinity/selector"
TOO_MANY_PODS: Final = "Too many pods"
NO_NODES: Final = "no nodes available to schedule pods"

NOT_READY_TAINT: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
UNSCHEDULABLE_TAINT: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_REPELLING_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})


@dataclass(slots=True)
class NodeCapacity:
    """One node as the scheduler sees it: labels, taints, allocatable and the requests placed on it."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]
    is_unschedulable: bool
    allocatable: Requests
    taken: Requests = field(default_factory=dict)

    def free(self, resource: str) -> int:
        """The unused amount of a resource, in thousandths."""
        return self.allocatable.get(resource, 0) - self.taken.get(resource, 0)

    def take(self, requests: Requests, sign: int = 1) -> None:
        """Add a pod's requests to what is taken, or release them with `sign=-1`."""
        for resource, amount in requests.items():
            self.taken[resource] = self.taken.get(resource, 0) + sign * amount

    def free_share(self, requests: Requests) -> float:
        """Shares of CPU and memory that are free beside the pod, as kube-scheduler's strategy LeastAllocated scores nodes."""
        shares = (
            (self.free(resource) - requests.get(resource, 0)) / self.allocatable[resource]
            for resource in ("cpu", "memory")
            if self.allocatable.get(resource)
        )
        return sum(shares)


def build_capacity(node: Mapping[str, Any]) -> NodeCapacity:
    """The capacity of a node object, with nothing taken yet."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    taints = list(spec.get("taints") or ())
    ready = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), None)
    if ready is not None and ready.get("status") != "True":
        taints.append(NOT_READY_TAINT)
    return NodeCapacity(
        name=node["metadata"]["name"],
        labels=node["metadata"].get("labels") or {},
        taints=taints,
        is_unschedulable=bool(spec.get("unschedulable")),
        allocatable=_amounts(status.get("allocatable") or status.get("capacity") or {}),
    )


def pod_requests(spec: Mapping[str, Any]) -> Requests:
    """The peak of a pod's requests, and one of the node's pod slots.

    Containers and restartable init containers run together; an ordinary init container runs beside the restartable ones
    before it; overhead is added on top.
    """
    together: Requests = {}
    peak: Requests = {}
    for container in spec.get("initContainers") or ():
        amounts = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            together = _sum(together, amounts)
            peak = _max(peak, together)
        else:
            peak = _max(peak, _sum(together, amounts))
    for container in spec.get("containers") or ():
        together = _sum(together, _container_requests(container))
    return _sum(_sum(_max(peak, together), _amounts(spec.get("overhead") or {})), {PODS: 1000})


def rule_out(spec: Mapping[str, Any], requests: Requests, capacity: NodeCapacity) -> list[str]:
    """Why the pod cannot run on the node, in the scheduler's words; empty when it fits."""
    tolerations = spec.get("tolerations") or ()
    if capacity.is_unschedulable and not _is_tolerated(UNSCHEDULABLE_TAINT, tolerations):
        return [UNSCHEDULABLE]
    for taint in capacity.taints:
        if taint.get("effect") in _REPELLING_EFFECTS and not _is_tolerated(taint, tolerations):
            return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
    if not _matches_node(spec, capacity):
        return [NO_AFFINITY]
    return [
        TOO_MANY_PODS if resource == PODS else f"Insufficient {resource}"
        for resource, amount in requests.items()
        if amount > 0 and amount > capacity.free(resource)
    ]


def unschedulable_message(reasons_by_node: Iterable[Sequence[str]]) -> str:
    """The message of an unschedulable pod: `0/3 nodes are available: 1 Insufficient memory, 3 Insufficient cpu.`"""
    reasons_by_node = list(reasons_by_node)
    if not reasons_by_node:
        return NO_NODES
    counts = Counter(reason for reasons in reasons_by_node for reason in reasons)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{len(reasons_by_node)} nodes are available: {listed}."


def _amounts(amounts: Mapping[str, Any]) -> Requests:
    return {resource: to_millis(amount) for resource, amount in amounts.items()}


def _container_requests(container: Mapping[str, Any]) -> Requests:
    resources = container.get("resources") or {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _sum(left: Requests, right: Requests) -> Requests:
    return {key: left.get(key, 0) + right.get(key, 0) for key in {**left, **right}}


def _max(left: Requests, right: Requests) -> Requests:
    return {key: max(left.get(key, 0), right.get(key, 0)) for key in {**left, **right}}


def _is_tolerated(taint: Mapping[str, str], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def _matches_node(spec: Mapping[str, Any], capacity: NodeCapacity) -> bool:
    wanted: Mapping[str, str] = spec.get("nodeSelector") or {}
    if any(capacity.labels.get(key) != value for key, value in wanted.items()):
        return False
    terms = required_terms(spec)
    return terms is None or any(_matches_term(term, capacity) for term in terms)


def required_terms(spec: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """The terms of the required node affinity, of which one has to match; None if every node matches."""
    required = _node_affinity(spec).get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else list(required.get("nodeSelectorTerms") or ())


def preference(spec: Mapping[str, Any], capacity: NodeCapacity) -> int:
    """Sum of the weights of the preferred node affinity terms that match the node."""
    preferred = _node_affinity(spec).get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    matching = (entry for entry in preferred if _matches_term(entry.get("preference") or {}, capacity))
    return sum(entry.get("weight") or 0 for entry in matching)


def _node_affinity(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    affinity: Mapping[str, Any] = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return affinity


def _matches_term(term: Mapping[str, Any], capacity: NodeCapacity) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False  # an empty term matches nothing
    return all(_matches_expression(e, capacity.labels) for e in expressions) and all(
        _matches_expression(e, {"metadata.name": capacity.name}) for e in fields
    )


def _matches_expression(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _is_ordered(values, value)
        case "Lt":
            return _is_ordered([value], values[0] if values else None)
        case _:
            return False


def _is_ordered(smaller: Sequence[str | None], larger: str | None) -> bool:
    """True when both are integers and the first is smaller; False for anything else."""
    try:
        return int(smaller[0] or "") < int(larger or "")
    except (ValueError, IndexError):
        return False
