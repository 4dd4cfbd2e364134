"""Holders of capacity: which workloads request what a workload lacks, and what is free, with the rights of the caller.

Takes the nodes and the pods of a cluster that have not ended, and what the workload needs, and returns per resource that is short
what is needed, what is free on the nodes where its pods may run, and who requests the rest there, largest first. Nodes count as
kube-scheduler counts them: selector, required affinity, taints, cordons, requests. Names of other namespaces are for the caller of
`raytide why` alone, never for status or events. Pure; called by explain.py (FD:UX3-1, FD:UX3-3, FD:UX3-4).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from raytide.api.capacity import CapacityNode, CapacityPod
from raytide.api.pod_requirements import HOST_PORT, Amounts, PodConstraints
from raytide.explain.model import RAYCLUSTER, TRAININGJOB, ClosedNodes, ClusterPods, Holding, Need, Shortage
from raytide.fairshare.algorithm.model import Node, Taint
from raytide.fairshare.algorithm.node_affinity import admits, matches, untolerated

OTHER: Final = "Pod"
_SAID_BY_THE_NODE: Final = frozenset(
    f"node.kubernetes.io/{what}" for what in ("not-ready", "unreachable", "unschedulable")
)
"""Taints that Kubernetes sets for what is known of the node otherwise."""
MAX_HOLDERS: Final = 5
MAX_NEEDS: Final = 5
"""Different pods of a workload that are compared with the nodes: those of which there are most."""


def pending(
    cluster: ClusterPods, kind: str, namespace: str, name: str, groups: Mapping[str, str] | None = None
) -> list[Need]:
    """The workload's pods without a node that a scheduler may place, equal ones of a group together; `groups` by pod, else the role."""
    found: dict[tuple[str, tuple[tuple[str, int], ...], PodConstraints], list[CapacityPod]] = {}
    for pod in cluster.pods:
        is_waiting = not pod.node and not pod.is_terminating and not pod.is_scheduling_gated and not pod.is_finished
        if is_waiting and owner_of(pod) == (kind, namespace, name):
            group = (groups or {}).get(pod.name, pod.role)
            found.setdefault((group, tuple(sorted(pod.requests.items())), pod.constraints), []).append(pod)
    return [Need(pods[0].shape, len(pods), group) for (group, _, _), pods in found.items()]


def shortages(
    cluster: ClusterPods, needs: Sequence[Need], own: tuple[str, str, str] = ("", "", "")
) -> tuple[Shortage, ...]:
    """What is short for all of them at once, by resource; empty if there is room for each.

    `own`: kind, namespace and name of the workload, which is no holder.
    """
    nodes = usable_nodes(cluster)
    found: dict[str, Shortage] = {}
    others = [pod for pod in cluster.pods if owner_of(pod) != own]
    for need in sorted(needs, key=lambda each: -each.count)[:MAX_NEEDS]:
        allowed = [node for node in nodes if admits(node, need.pod.constraints)]
        if not allowed or sum(_times(node, need.pod.requests) for node in allowed) >= need.count:
            continue  # without a node that admits them, no capacity would help
        for resource in (name for name in need.pod.requests if not name.startswith(HOST_PORT)):
            short = _shortage(resource, need, allowed, others)
            known = found.get(resource)
            if short is not None and (known is None or short.needed > known.needed):
                found[resource] = short
    return tuple(sorted(found.values(), key=lambda each: (not each.is_impossible, -each.missing, each.resource)))


def closed_nodes(cluster: ClusterPods, needs: Sequence[Need]) -> ClosedNodes | None:
    """Why no node admits those of the pods of which there are most; None if a node does, or nothing is needed."""
    if not needs or not cluster.nodes:
        return None
    pod = max(needs, key=lambda each: each.count).pod
    nodes = _nodes(cluster)
    if any(node.is_usable and admits(node, pod.constraints) for node in nodes):
        return None
    matching = [node for node in nodes if matches(node, pod.constraints)]
    with_room = [node for node in matching if _times(node, pod.requests)] or matching
    views = {node.name: node for node in cluster.nodes}
    closings = [_closings(node, views[node.name], pod.constraints) for node in with_room]
    least = min(map(len, closings), default=0)
    found = [each for closing in closings if len(closing) == least for each in closing]
    selector = ",".join(f"{name}={value}" for name, value in sorted(pod.constraints.node_selector))
    tainted = tuple((node, taint) for kind, node, taint in found if kind == "taint")
    return ClosedNodes(selector, _of_kind(found, "cordoned"), _of_kind(found, "not ready"), tainted)


def _closings(node: Node, view: CapacityNode, constraints: PodConstraints) -> list[tuple[str, str, str]]:
    """What keeps the pods from a node that matches: kind, node and taint."""
    found = [("cordoned", node.name, "")] if view.is_cordoned else []
    found += [("not ready", node.name, "")] if not view.is_ready else []
    taints = (taint for taint in untolerated(node, constraints) if taint.key not in _SAID_BY_THE_NODE)
    return found + [("taint", node.name, spelled_taint(taint)) for taint in taints]


def _of_kind(found: Iterable[tuple[str, str, str]], kind: str) -> tuple[str, ...]:
    return tuple(node for each, node, _ in found if each == kind)


def spelled_taint(taint: Taint) -> str:
    """A taint as `kubectl taint` writes it."""
    return f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"


def usable_nodes(cluster: ClusterPods) -> list[Node]:
    """Nodes that are ready and not cordoned, with what the pods there request."""
    return [node for node in _nodes(cluster) if node.is_usable]


def _nodes(cluster: ClusterPods) -> list[Node]:
    used: dict[str, Counter[str]] = {}
    for pod in cluster.pods:
        if pod.node:
            used.setdefault(pod.node, Counter()).update(pod.requests)
    return [
        Node(
            node.name,
            node.allocatable,
            used.get(node.name, {}),
            labels=node.labels,
            taints=tuple(Taint(*each) for each in node.taints),
            is_usable=node.is_ready and not node.is_cordoned,
        )
        for node in cluster.nodes
    ]


def _shortage(resource: str, need: Need, nodes: Sequence[Node], pods: Iterable[CapacityPod]) -> Shortage | None:
    """The resource if there is too little of it, in sum or on each single node."""
    each = need.pod.requests[resource]
    free = {node.name: _free(node, resource) for node in nodes}
    if not each or sum(amount // each for amount in free.values()) >= need.count:
        return None
    held: Counter[tuple[str, str, str]] = Counter()
    for pod in pods:
        if pod.node in free:
            held[owner_of(pod)] += pod.requests.get(resource, 0)
    holders = sorted((Holding(*owner, amount) for owner, amount in held.items() if amount), key=_largest_first)
    offered = [node.allocatable.get(resource, 0) for node in nodes]
    return Shortage(
        resource=resource,
        each=each,
        needed=each * need.count,
        free=sum(free.values()),
        most_free=max(free.values(), default=0),
        largest=max(offered, default=0),
        total=sum(offered),
        holders=tuple(holders[:MAX_HOLDERS]),
        more_holders=max(0, len(holders) - MAX_HOLDERS),
    )


def requested_in(cluster: ClusterPods, namespace: str, resource: str) -> tuple[Holding, ...]:
    """Who requests the resource in a namespace, largest first, as a ResourceQuota without a scope counts it."""
    held: Counter[tuple[str, str, str]] = Counter()
    for pod in cluster.pods:
        if pod.namespace == namespace and not pod.is_finished:
            held[owner_of(pod)] += pod.requests.get(resource, 0)
    found = sorted((Holding(*owner, amount) for owner, amount in held.items() if amount), key=_largest_first)
    return tuple(found[:MAX_HOLDERS])


def _largest_first(one: Holding) -> tuple[int, str, str, str]:
    return -one.amount, one.kind, one.namespace, one.name


def owner_of(pod: CapacityPod) -> tuple[str, str, str]:
    """Kind, namespace and name of the workload that its labels name; of the pod itself if they name none."""
    if pod.cluster:
        return RAYCLUSTER, pod.namespace, pod.cluster
    return (TRAININGJOB, pod.namespace, pod.job) if pod.job else (OTHER, pod.namespace, pod.name)


def _free(node: Node, resource: str) -> int:
    return max(0, node.allocatable.get(resource, 0) - node.used.get(resource, 0))


def _times(node: Node, requests: Amounts) -> int:
    """How many such pods fit."""
    wanted = {name: amount for name, amount in requests.items() if amount and not name.startswith(HOST_PORT)}
    return min((_free(node, name) // amount for name, amount in wanted.items()), default=0)
