"""What is seen of a cluster at one moment, and which pod and which Ray node are the same thing?

Takes pods, Ray nodes and the order that stands, sorts and indexes them: a living Ray node before the dead one that it
replaced, one head among several, Ray nodes without a pod apart (SC:S15, V-9). It says nothing yet about where anything is
in its life. Pure; used by instances.py.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from raytide.api.pod import PodView
from raytide.autoscaler.inputs.node_types import NodeTypes
from raytide.autoscaler.inputs.steady import Known, Sorted, Steady
from raytide.autoscaler.model import NodeType, RayNode

HEAD_RESOURCE: Final = "node:__internal_head__"
"""By which Ray marks the head's node (AS:G-4)."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What is seen at one moment."""

    pods: Sequence[PodView]
    """Every pod of the cluster, dying ones too."""
    nodes: Sequence[RayNode]
    types: NodeTypes
    now_s: float
    """Monotonic."""
    wanted: Mapping[str, int] | None = None
    """By group, the pods the operator is working towards (spec, record and limits together); None: `types.wanted`."""
    to_delete: Collection[str] = ()
    """Names in `workersToDelete`, of spec and record."""
    drains: Collection[str] = ()
    """Ids of Ray nodes that were asked to drain and have not refused."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The same sight, sorted and indexed."""

    pods: Sorted
    node_by_pod: Mapping[str, RayNode]
    types: Mapping[str, NodeType]
    skipped: frozenset[str]
    suspended: frozenset[str]
    bare_head: RayNode | None
    """The head's living Ray node, if it does not say in which pod it lives."""
    bare: tuple[RayNode, ...]
    """Living Ray nodes that nobody launched through the cluster."""
    steady: Mapping[str, Steady]
    """What was known of pods; it may hold no longer."""

    @classmethod
    def of(cls, sight: Sight, known: Known) -> "Seen":
        """That sight."""
        pods = known.sorted(tuple(sight.pods))
        bare = [node for node in sight.nodes if not node.instance_id and node.is_alive]
        return cls(
            pods=pods,
            node_by_pod=_node_by_pod(sight.nodes, pods.names),
            types=sight.types.by_name(),
            skipped=sight.types.skipped,
            suspended=sight.types.suspended,
            bare_head=next((node for node in bare if _is_head_node(node)), None),
            bare=tuple(node for node in bare if not _is_head_node(node)),
            steady=known.of(sight.types.skipped),
        )

    def node_of(self, pod: PodView) -> RayNode | None:
        """The Ray node in that pod."""
        return self.node_by_pod.get(pod.name) or (self.bare_head if pod.is_head else None)

    def is_in_spec(self, pod: PodView) -> bool:
        """Whether the operator keeps its group."""
        return pod.group in self.skipped or (pod.group in self.types and pod.group not in self.suspended)


def _node_by_pod(nodes: Iterable[RayNode], names: Collection[str]) -> dict[str, RayNode]:
    """A pod's Ray node: a living one before any dead one, which it replaced."""
    found: dict[str, RayNode] = {}
    for node in nodes:
        if node.instance_id in names:
            known = found.get(node.instance_id)
            if known is None or not known.is_alive:
                found[node.instance_id] = node
    return found


def _is_head_node(node: RayNode) -> bool:
    return any(name == HEAD_RESOURCE for name, _ in node.total)


def head_of(heads: Sequence[PodView], seen: Seen) -> PodView | None:
    """The one head: a living pod before a dying one, one with a living Ray node before one without (SC:S15)."""

    def rank(pod: PodView) -> tuple[bool, bool]:
        node = seen.node_by_pod.get(pod.name)
        return pod.is_terminating or pod.is_finished, node is None or not node.is_alive

    return min(heads, key=rank, default=None)
