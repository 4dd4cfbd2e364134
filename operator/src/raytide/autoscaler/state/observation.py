"""Observation of the cluster at one moment: pods matched with Ray nodes.

Takes pods, Ray nodes and the targets in force, and sorts and indexes them: a live Ray node before the dead one it
replaced, one head among several, Ray nodes without a pod apart (SC:S15, V-9). It does not determine lifecycle stages.
Pure; used by instances.py.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from raytide.api.pod import PodView
from raytide.autoscaler.model import NodeType, RayNode
from raytide.autoscaler.state.instance_cache import CachedInstance, InstanceCache, Sorted
from raytide.autoscaler.state.node_types import NodeTypes

HEAD_RESOURCE: Final = "node:__internal_head__"
"""Resource by which Ray marks the head node (AS:G-4)."""


@dataclass(frozen=True, slots=True)
class InstanceInputs:
    """Raw observation at one moment."""

    pods: Sequence[PodView]
    """Every pod of the cluster, including terminating ones."""
    nodes: Sequence[RayNode]
    types: NodeTypes
    now_s: float
    """Monotonic."""
    desired_hosts: Mapping[str, int] | None = None
    """By group, the pods the operator works towards (spec, record and limits combined); None: `types.desired_hosts`."""
    to_delete: Collection[str] = ()
    """Names in `workersToDelete`, of spec and record."""
    drains: Collection[str] = ()
    """Ids of Ray nodes for which a drain was requested and not rejected."""


@dataclass(frozen=True, slots=True)
class ObservedState:
    """The same observation, sorted and indexed."""

    pods: Sorted
    node_by_pod: Mapping[str, RayNode]
    types: Mapping[str, NodeType]
    skipped: frozenset[str]
    suspended: frozenset[str]
    bare_head: RayNode | None
    """The live Ray node of the head, if it reports no pod name."""
    bare: tuple[RayNode, ...]
    """Live Ray nodes that were not launched through the cluster."""
    cached: Mapping[str, CachedInstance]
    """Cached entries by pod; they may be outdated."""

    @classmethod
    def of(cls, inputs: InstanceInputs, known: InstanceCache) -> "ObservedState":
        """Index the observation."""
        pods = known.sorted(tuple(inputs.pods))
        bare = [node for node in inputs.nodes if not node.instance_id and node.is_alive]
        return cls(
            pods=pods,
            node_by_pod=_node_by_pod(inputs.nodes, pods.names),
            types=inputs.types.by_name(),
            skipped=inputs.types.skipped,
            suspended=inputs.types.suspended,
            bare_head=next((node for node in bare if _is_head_node(node)), None),
            bare=tuple(node for node in bare if not _is_head_node(node)),
            cached=known.of(inputs.types.skipped),
        )

    def node_of(self, pod: PodView) -> RayNode | None:
        """The Ray node in the pod."""
        return self.node_by_pod.get(pod.name) or (self.bare_head if pod.is_head else None)

    def is_in_spec(self, pod: PodView) -> bool:
        """Whether the operator keeps the pod's group."""
        return pod.group in self.skipped or (pod.group in self.types and pod.group not in self.suspended)


def _node_by_pod(nodes: Iterable[RayNode], names: Collection[str]) -> dict[str, RayNode]:
    """Ray node by pod: a live one before any dead one it replaced."""
    found: dict[str, RayNode] = {}
    for node in nodes:
        if node.instance_id in names:
            known = found.get(node.instance_id)
            if known is None or not known.is_alive:
                found[node.instance_id] = node
    return found


def _is_head_node(node: RayNode) -> bool:
    return any(name == HEAD_RESOURCE for name, _ in node.total)


def head_of(heads: Sequence[PodView], seen: ObservedState) -> PodView | None:
    """The one head: a live pod before a terminating one, one with a live Ray node before one without (SC:S15)."""

    def rank(pod: PodView) -> tuple[bool, bool]:
        node = seen.node_by_pod.get(pod.name)
        return pod.is_terminating or pod.is_finished, node is None or not node.is_alive

    return min(heads, key=rank, default=None)
