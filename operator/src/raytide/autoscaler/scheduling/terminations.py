"""Terminations: replicas above a limit, idle, or of a type no longer in the spec.

A replica is launched and terminated as a whole: one node, or all hosts of a multi-host group (B-8). Takes the planning
nodes as replicas and selects those to terminate: of types no longer in the spec (B-1), above a maximum, or idle beyond
their timeout, in Ray's order of preference (AS:S-10). Never below a type's minimum, never the head, never a node joined
by hand (V-9). Marks nodes; called by schedule.py.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from raytide.autoscaler.model import NodeType, SchedulingRequest, TerminationCause
from raytide.autoscaler.scheduling.node_classes import Node, NodeDisposition
from raytide.autoscaler.scheduling.session import idle_key


@dataclass(slots=True, eq=False)
class Replica:
    """Nodes that are launched and terminated together."""

    nodes: list[Node]

    @property
    def key(self) -> tuple[bool, int, float]:
        """Sort key of the host that should be terminated last."""
        return max(idle_key(node) for node in self.nodes)

    def terminate(self, cause: TerminationCause) -> None:
        """Mark all its nodes."""
        for node in self.nodes:
            node.cause = cause


def replicas_by_type(nodes: Iterable[Node], types: Mapping[str, NodeType]) -> dict[str, list[Replica]]:
    """Workers not marked for termination, as replicas in node order; types not in the spec are single-host.

    Hosts of a multi-host group that name no replica fill replicas one after the other.
    """
    found: defaultdict[str, list[Replica]] = defaultdict(list)
    multi_host: dict[tuple[str, str | int], Replica] = {}
    nameless: Counter[str] = Counter()
    for node in nodes:
        traits = node.node_class.traits
        name = traits.type_name
        if not name or traits.is_head or node.cause is not None:
            continue
        hosts = types[name].num_of_hosts if name in types else 1
        if hosts == 1:
            found[name].append(Replica([node]))
            continue
        which: str | int = node.instance.replica if node.instance else ""
        if not which:
            which = nameless[name] // hosts
            nameless[name] += 1
        replica = multi_host.get((name, which))
        if replica is None:
            replica = multi_host[name, which] = Replica([])
            found[name].append(replica)
        replica.nodes.append(node)
    return dict(found)


def terminate_excess(
    found: dict[str, list[Replica]], types: Mapping[str, NodeType], max_nodes: int | None
) -> dict[str, list[Replica]]:
    """Mark replicas above a maximum; return the rest by type (AS:S-8, AS:S-9).

    The cluster-wide limit does not go below any minimum: two contradictory limits are no reason to terminate running
    work.
    """
    staying: dict[str, list[Replica]] = {}
    for name, replicas in found.items():
        node_type = types.get(name)
        if node_type is None:
            _terminate_all(replicas, TerminationCause.OUTDATED)
            continue
        excess = max(0, len(replicas) - node_type.max_nodes // node_type.num_of_hosts)
        ordered = sorted(replicas, key=lambda one: one.key) if excess else replicas
        _terminate_all(ordered[:excess], TerminationCause.MAX_NUM_NODE_PER_TYPE)
        staying[name] = ordered[excess:]
    if max_nodes is None:
        return staying
    too_many = sum(len(one.nodes) for replicas in staying.values() for one in replicas) - max_nodes
    if too_many > 0:
        left = {name: len(replicas) for name, replicas in staying.items()}
        for name, one in sorted(((n, r) for n, rs in staying.items() for r in rs), key=lambda pair: pair[1].key):
            if too_many > 0 and left[name] > min_replicas_of(types[name]):
                one.terminate(TerminationCause.MAX_NUM_NODES)
                left[name] -= 1
                too_many -= len(one.nodes)
    return {name: [one for one in replicas if one.nodes[0].cause is None] for name, replicas in staying.items()}


def end_idle(
    found: Mapping[str, Sequence[Replica]], inputs: SchedulingRequest, is_needed: Callable[[Node], bool]
) -> None:
    """Terminate replicas whose hosts are all idle beyond the timeout and hold no demand (AS:S-30)."""
    for node_type in inputs.types:
        timeout_s = inputs.idle_timeout_s if node_type.idle_timeout_s is None else node_type.idle_timeout_s
        replicas = found.get(node_type.name, ())
        if timeout_s is None or not replicas:
            continue
        idle = [one for one in replicas if _is_idle(one, timeout_s * 1000) and not any(map(is_needed, one.nodes))]
        if not idle:
            continue
        there = sum(any(node.node_class.disposition is NodeDisposition.KEPT for node in one.nodes) for one in replicas)
        spare = max(0, there - min_replicas_of(node_type))
        for one in sorted(idle, key=lambda replica: replica.key)[:spare]:
            one.terminate(TerminationCause.IDLE)


def min_replicas_of(node_type: NodeType) -> int:
    """Replicas the minimum requires, never above the maximum (B-20)."""
    hosts = node_type.num_of_hosts
    return max(0, min(-(-node_type.min_nodes // hosts), node_type.max_nodes // hosts))


def hosts_of(found: Mapping[str, Sequence[Replica]], types: Iterable[NodeType]) -> Counter[str]:
    """Nodes that count against the limits: an incomplete replica counts as complete."""
    return Counter({one.name: len(found.get(one.name, ())) * one.num_of_hosts for one in types})


def _is_idle(replica: Replica, timeout_ms: float) -> bool:
    """Whether all hosts are idle beyond the timeout."""
    for node in replica.nodes:  # a generator for `all` would take longer than the check, for each of thousands
        instance = node.instance
        if instance is None or instance.idle_ms <= timeout_ms:
            return False
        if instance.is_idle_blocked or not node.node_class.traits.is_running:
            return False
    return True


def _terminate_all(replicas: Iterable[Replica], cause: TerminationCause) -> None:
    for one in replicas:
        one.terminate(cause)
