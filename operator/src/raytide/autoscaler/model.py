"""Data model of the autoscaler, in Ray's terms.

Frozen, hashable values: node types, instances, Ray nodes, requests, demands, gangs, and the decision. Amounts are whole
multiples of 1/10000 of a Ray unit, Ray's own resolution, so that ten times 0.1 CPU fill one CPU (B-23). No
decisions. Created by autoscaler/gcs/client.py (from Ray), node_types.py and instances.py (from Kubernetes); read by
schedule.py and everything after it (AS §2, D5).
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

RESOURCE_UNIT_SCALING: Final = 10_000
"""One unit of a Ray resource: `{"CPU": 5_000}` is half a CPU; memory is bytes times this."""

Amounts: TypeAlias = tuple[tuple[str, int], ...]
"""(resource, amount), sorted by name; an amount of 0 counts only in the comparison with Ray (AS:S-21)."""
Labels: TypeAlias = tuple[tuple[str, str], ...]
"""(key, value), sorted."""

HEAD_TYPE: Final = "headgroup"
IMPLICIT: Final = "node:__internal_implicit_resource_"
"""Prefix of implicit resources: every node has one unit without listing it (AS §2.4 FILL 3)."""

PLACEMENT_GROUP_RESOURCE: Final = re.compile(r".*_group_(?:\d+_)?[0-9a-f]{36}")
"""Resource of a placement group, or of one of its bundles, on the nodes that hold it: `CPU_group_0_<id>` (AS:G-6)."""


def amounts_of(resources: Mapping[str, float]) -> Amounts:
    """Ray's floats as whole numbers, rounded to the nearest 1/10000 here and nowhere else."""
    return tuple(sorted((name, round(amount * RESOURCE_UNIT_SCALING)) for name, amount in resources.items()))


def implicit_amount(resource: str) -> int:
    """Amount of a resource that a node does not list: one unit of an implicit resource, none of any other."""
    return RESOURCE_UNIT_SCALING if resource.startswith(IMPLICIT) else 0


def labels_of(labels: Mapping[str, str]) -> Labels:
    """A label map as a sorted tuple."""
    return tuple(sorted(labels.items()))


class Status(StrEnum):
    """Instance status, spelled as in Ray's instance manager (AS §3.1)."""

    QUEUED = "QUEUED"
    REQUESTED = "REQUESTED"
    ALLOCATED = "ALLOCATED"
    RAY_INSTALLING = "RAY_INSTALLING"
    RAY_RUNNING = "RAY_RUNNING"
    RAY_STOP_REQUESTED = "RAY_STOP_REQUESTED"
    RAY_STOPPING = "RAY_STOPPING"
    RAY_STOPPED = "RAY_STOPPED"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    ALLOCATION_FAILED = "ALLOCATION_FAILED"
    RAY_INSTALL_FAILED = "RAY_INSTALL_FAILED"
    TERMINATION_FAILED = "TERMINATION_FAILED"
    ALLOCATION_TIMEOUT = "ALLOCATION_TIMEOUT"

    __hash__ = str.__hash__
    """Enum's own is a Python function, and each tick looks up the status of every node in sets of them."""


COUNTABLE: Final = frozenset(
    {
        Status.QUEUED,
        Status.REQUESTED,
        Status.ALLOCATED,
        Status.RAY_INSTALLING,
        Status.RAY_RUNNING,
        Status.RAY_STOP_REQUESTED,
    }
)
"""Statuses from which RAY_RUNNING can still be reached: only such instances are capacity (AS:S-2)."""
UNSEEN: Final = frozenset({Status.QUEUED, Status.REQUESTED, Status.ALLOCATION_FAILED})
"""Requested, without a pod."""
STARTING: Final = frozenset({Status.ALLOCATED, Status.RAY_INSTALLING})
"""A pod without a Ray node yet."""


class TerminationCause(StrEnum):
    """Why an instance is to be terminated (AS:S-32)."""

    IDLE = "IDLE"
    MAX_NUM_NODE_PER_TYPE = "MAX_NUM_NODE_PER_TYPE"
    MAX_NUM_NODES = "MAX_NUM_NODES"
    OUTDATED = "OUTDATED"


@dataclass(frozen=True, slots=True)
class NodeType:
    """One worker group, or the head, as the scheduler sees it; all counts are pods (hosts), not replicas (AS:C-2)."""

    name: str
    min_nodes: int = 0
    max_nodes: int = 0
    """The user's maximum; nodes above it are terminated. 1 for the head type, so that one head is within its limit
    (AS:C-2)."""
    resources: Amounts = ()
    labels: Labels = ()
    idle_timeout_s: float | None = None
    """None: the cluster's (AS:C-4)."""
    priority: int = 0
    num_of_hosts: int = 1
    """Launches and terminations are whole multiples of it (B-8)."""
    first_resources: Amounts = ()
    """Resources of each replica's first host if it has more than the others, as worker 0 of a TPU slice; else empty."""
    first_labels: Labels = ()
    """Labels of that host."""
    available: int | None = None
    """How many more nodes may be requested now; it terminates none. None: as many as `max_nodes` allows."""

    @property
    def is_head(self) -> bool:
        """Whether this is the head's type."""
        return self.name == HEAD_TYPE

    @property
    def has_first(self) -> bool:
        """Whether the first host of a replica differs from the others."""
        return bool(self.first_resources)


class NodeStatus(StrEnum):
    """Node status reported by the GCS (AS §1.4 NodeState.status)."""

    UNSPECIFIED = "UNSPECIFIED"
    RUNNING = "RUNNING"
    DEAD = "DEAD"
    IDLE = "IDLE"
    DRAINING = "DRAINING"


@dataclass(frozen=True, slots=True)
class RayNode:
    """One node as the GCS reports it; a dead one has only ids, type and address (AS:G-2)."""

    node_id: str
    """Hexadecimal."""
    status: NodeStatus
    instance_id: str = ""
    """The pod's name (env RAY_CLOUD_INSTANCE_ID); empty for a node not launched through the cluster (V-9)."""
    node_type: str = ""
    total: Amounts = ()
    available: Amounts = ()
    """A resource that is completely used is missing (AS:G-4)."""
    labels: Labels = ()
    dynamic_labels: Labels = ()
    idle_ms: int = 0
    address: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether the GCS does not report it as dead."""
        return self.status is not NodeStatus.DEAD


@dataclass(frozen=True, slots=True)
class LabelConstraint:
    """`key in values`, or `key not in values` (AS §2.4 FILL 1)."""

    key: str
    values: tuple[str, ...]
    is_in: bool = True
    is_known: bool = True
    """False for an unknown operator: it never matches."""

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels meets it."""
        return self.is_known and (labels.get(self.key) in self.values) == self.is_in


Selector: TypeAlias = tuple[LabelConstraint, ...]
"""All constraints must hold; the empty selector matches every node."""


@dataclass(frozen=True, slots=True)
class Request:
    """What one task, actor or bundle needs, on one node."""

    amounts: Amounts
    selectors: tuple[Selector, ...] = ()
    """Alternatives in order of preference; an empty tuple means no label requirement (AS:G-7)."""
    affinity: tuple[str, str] | None = None
    """(label, value): placed on one node together with the requests of the same pair (STRICT_PACK, AS:G-8)."""
    anti_affinity: tuple[str, str] | None = None
    """(label, value): never two of the same pair on one node (STRICT_SPREAD)."""


@dataclass(frozen=True, slots=True)
class Demand:
    """`count` times the same request."""

    request: Request
    count: int = 1


@dataclass(frozen=True, slots=True)
class Topology:
    """Topology strategy of a gang: all of its bundles on nodes with the same value of a label (AS:G-8)."""

    label: str
    selector: Selector = ()
    """Matches the nodes of the value that the gang already has; empty: it has none yet."""
    is_known: bool = True
    """False for another strategy than STRICT_PACK: no nodes meet it."""


@dataclass(frozen=True, slots=True)
class Gang:
    """One placement group (gang resource request): its bundles are placed all at once or not at all (AS:G-8)."""

    details: str
    """`<placement group id>:<strategy>|<state>`, reported back unchanged."""
    bundles: tuple[Request, ...] = ()
    topology: Topology | None = None


@dataclass(frozen=True, slots=True)
class GcsState:
    """Cluster resource state reported by the GCS at one moment."""

    nodes: tuple[RayNode, ...] = ()
    tasks: tuple[Demand, ...] = ()
    gangs: tuple[Gang, ...] = ()
    constraint: tuple[Demand, ...] | None = None
    """`request_resources()`; None if it was never called, empty if the last call was empty (AS:G-9)."""
    version: int = 0
    """The GCS's own counter, to be reported back; it is no indication of changes (AS:G-1)."""
    session: str = ""
    """Changes when the GCS restarted without its state."""
    problems: tuple[str, ...] = ()
    """Invalid entries that were left out: one sentence per kind with a count and the first example."""


class DrainReason(StrEnum):
    """Why a node should drain; a busy raylet rejects idle termination, but never a preemption (AS:G-12)."""

    IDLE_TERMINATION = "IDLE_TERMINATION"
    PREEMPTION = "PREEMPTION"


@dataclass(frozen=True, slots=True)
class Drained:
    """Drain result of the GCS; an unknown node counts as accepted (AS:G-12)."""

    is_accepted: bool
    message: str = ""
    """The reason of a rejection."""


@dataclass(frozen=True, slots=True)
class HeadDirectories:
    """Directories of Ray on the head node."""

    temp_dir: str
    session_dir: str

    @property
    def logs(self) -> str:
        """Log folder of the latest session, by symlink: the place of monitor.log (AS §1.1)."""
        return f"{self.temp_dir}/session_latest/logs"


@dataclass(frozen=True, slots=True)
class Instance:
    """One node that exists or is launching: a pod, the Ray node in it, or a requested host without a pod."""

    instance_id: str
    """The pod's name; for a requested host without a pod a generated name, the same in every tick."""
    node_type: str
    """Empty for an unmanaged Ray node: capacity that is never launched, terminated, drained or counted (V-9)."""
    status: Status
    is_head: bool = False
    pod: str = ""
    node_id: str = ""
    total: Amounts = ()
    available: Amounts = ()
    labels: Labels = ()
    """Static labels of the Ray node; dynamic ones are separate, because they name placement groups."""
    dynamic_labels: Labels = ()
    idle_ms: int = 0
    replica: str = ""
    """In a multi-host group, the name of the replica this host belongs to."""
    is_idle_blocked: bool = False
    """Never terminate it as idle, whatever its idle time."""

    @property
    def is_unmanaged(self) -> bool:
        """Whether the node was joined to the cluster by hand."""
        return not self.node_type


OnProgress: TypeAlias = Callable[[], None]
"""Called repeatedly during a long decision, to signal progress."""


def unwatched() -> None:
    """Ignore progress."""


@dataclass(frozen=True, slots=True)
class SchedulingRequest:
    """Inputs of a scheduling decision."""

    types: tuple[NodeType, ...]
    """Head first, then the groups in spec order: ties go to the earlier (AS:C-1, AS:S-25)."""
    instances: tuple[Instance, ...] = ()
    tasks: tuple[Demand, ...] = ()
    gangs: tuple[Gang, ...] = ()
    constraint: tuple[Demand, ...] | None = None
    max_nodes: int = 0
    """Of the whole cluster, head included; 0 means no limit (AS:C-3)."""
    idle_timeout_s: float | None = 60.0
    availability: Mapping[str, float] = field(default_factory=dict)
    """By type, only types that failed recently (AS:S-22)."""
    recoverable: Mapping[str, float] = field(default_factory=dict)
    """By type (AS:S-23)."""
    has_gpu_conservation: bool = True
    """Avoid nodes with accelerators for requests that name none (AS §2.4 score 2; AUTOSCALER_CONSERVE_GPU_NODES)."""
    full: frozenset[str] = frozenset()
    """Types with nothing `available` only for lack of capacity: they may be requested for demand that fits no other
    type."""
    waiting: tuple[Instance, ...] = ()
    """Instances that wait for capacity, besides `instances`: they hold only demand that fits no other node."""


@dataclass(frozen=True, slots=True)
class Termination:
    """One instance to terminate."""

    instance_id: str
    cause: TerminationCause


@dataclass(frozen=True, slots=True)
class SchedulingReply:
    """Launches and terminations, and the demand that is not met."""

    launches: Mapping[str, int] = field(default_factory=dict)
    """Nodes to launch by type, nonzero entries only."""
    terminations: tuple[Termination, ...] = ()
    unplaced: tuple[Demand, ...] = ()
    """Single requests without a place now: infeasible ones and those that only lack capacity (B-14)."""
    impossible: tuple[Demand, ...] = ()
    """Those of `unplaced` that no empty node of any type could hold."""
    unplaced_gangs: tuple[Gang, ...] = ()
    impossible_gangs: tuple[Gang, ...] = ()
    """Those of `unplaced_gangs` with a bundle that no empty node could hold, whatever their topology."""
    unmet: tuple[Demand, ...] = ()
    """The part of the constraint without a place."""
    impossible_constraint: tuple[Demand, ...] = ()
    """Those of `unmet` that no empty node of any type could hold."""
    totals: tuple[Amounts, ...] = ()
    """Of each node after this decision, launches included."""
    needed: frozenset[str] = frozenset()
    """Ids of instances that hold a request or a bundle of this decision, in either book."""

    @property
    def cluster_resources(self) -> Amounts:
        """Sum of all totals (AS:S-32); computed where it is read, because few ticks report it."""
        sums: Counter[str] = Counter()
        for total in self.totals:
            for name, amount in total:
                sums[name] += amount
        return tuple(sorted(sums.items()))


# --- report to the GCS (AS §5.3) -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """Requested nodes of one type without a pod; one entry per node makes `ray status` count right (AS §5.5)."""

    node_type: str
    count: int = 1
    requested_at_s: int = 0
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class PendingInstance:
    """A pod without its Ray node; `details` is its text in `ray status`."""

    node_type: str
    instance_id: str
    address: str = ""
    details: str = ""


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """A failed launch and its reason."""

    node_type: str
    count: int
    reason: str
    started_at_s: int = 0
    failed_at_s: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """Autoscaling state for `ray status`, the dashboard and warnings to drivers."""

    gcs_version: int
    """Version of the cluster resource state this report is based on."""
    version: int
    """Never lower than that of an earlier report, or the GCS ignores it (B-5)."""
    pending_requests: tuple[PendingRequest, ...] = ()
    pending_instances: tuple[PendingInstance, ...] = ()
    failed_requests: tuple[FailedRequest, ...] = ()
    infeasible: tuple[Demand, ...] = ()
    """Only demand that no node type could hold: Ray warns, and may cancel tasks, by this list (AS:G-11)."""
    infeasible_gangs: tuple[Gang, ...] = ()
    infeasible_constraint: tuple[Demand, ...] | None = None
