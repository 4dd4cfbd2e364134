"""What does the autoscaler reason about?

Frozen values in Ray's words: node types, instances, Ray nodes, requests, demands, gangs, and the decision. Amounts are
whole numbers of 1/10000 of a Ray unit, which is Ray's own resolution, so that ten times 0.1 CPU fill one CPU (B-23).
Nothing here decides anything, and everything may be hashed and compared. Made by gcs.py (what Ray says), node_types.py
and instances.py (what Kubernetes says); read by schedule.py and all that follows it (AS §2, D5).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

UNIT: Final = 10_000
"""One of a Ray resource: `{"CPU": 5_000}` is half a CPU, memory is bytes times this."""

Amounts: TypeAlias = tuple[tuple[str, int], ...]
"""(resource, amount), sorted by name; zero amounts stay, because naming a resource counts (AS:S-21)."""
Labels: TypeAlias = tuple[tuple[str, str], ...]
"""(key, value), sorted."""

HEAD_TYPE: Final = "headgroup"


def amounts_of(resources: Mapping[str, float]) -> Amounts:
    """Ray's floats as whole numbers, rounded to the nearest 1/10000 at this edge and nowhere else."""
    return tuple(sorted((name, round(amount * UNIT)) for name, amount in resources.items()))


def labels_of(labels: Mapping[str, str]) -> Labels:
    """A label map as a value."""
    return tuple(sorted(labels.items()))


class Status(StrEnum):
    """Where an instance is in its life, spelled as Ray's instance manager does (AS §3.1)."""

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
"""From these RAY_RUNNING can still be reached: only such instances are capacity (AS:S-2)."""
UNSEEN: Final = frozenset({Status.QUEUED, Status.REQUESTED, Status.ALLOCATION_FAILED})
"""Asked for, and no pod."""
STARTING: Final = frozenset({Status.ALLOCATED, Status.RAY_INSTALLING})
"""A pod, and no Ray node yet."""


class Cause(StrEnum):
    """Why an instance is to end (AS:S-32)."""

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
    """The user's; what is above it ends. For the head type 1, so that one head is within its limit (AS:C-2)."""
    resources: Amounts = ()
    labels: Labels = ()
    idle_timeout_s: float | None = None
    """None: the cluster's (AS:C-4)."""
    priority: int = 0
    num_of_hosts: int = 1
    """Launches and terminations are whole multiples of it (B-8)."""
    first_resources: Amounts = ()
    """Of the first host of each replica, where it has what the others have not, as worker 0 of a TPU slice; else empty."""
    first_labels: Labels = ()
    """Of that host."""
    available: int | None = None
    """How many more nodes may be asked for now; it ends none. None: as many as `max_nodes` allows."""

    @property
    def is_head(self) -> bool:
        """Whether this is the head's type."""
        return self.name == HEAD_TYPE

    @property
    def has_first(self) -> bool:
        """Whether the first host of a replica differs from the others."""
        return bool(self.first_resources)


class NodeStatus(StrEnum):
    """What the GCS says about a Ray node (AS §1.4 NodeState.status)."""

    UNSPECIFIED = "UNSPECIFIED"
    RUNNING = "RUNNING"
    DEAD = "DEAD"
    IDLE = "IDLE"
    DRAINING = "DRAINING"


@dataclass(frozen=True, slots=True)
class RayNode:
    """One node as the GCS shows it; a dead one has only ids, type and address (AS:G-2)."""

    node_id: str
    """Hexadecimal."""
    status: NodeStatus
    instance_id: str = ""
    """The pod's name (env RAY_CLOUD_INSTANCE_ID); empty for a node nobody launched through the cluster (V-9)."""
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
        """Whether the GCS counts it among the living."""
        return self.status is not NodeStatus.DEAD


@dataclass(frozen=True, slots=True)
class LabelConstraint:
    """`key in values`, or `key not in values` (AS §2.4 FILL 1)."""

    key: str
    values: tuple[str, ...]
    is_in: bool = True
    is_known: bool = True
    """False for an operator we do not know: it never matches."""


Selector: TypeAlias = tuple[LabelConstraint, ...]
"""All must hold; the empty selector matches every node."""


@dataclass(frozen=True, slots=True)
class Request:
    """What one task, actor or bundle needs, on one node."""

    amounts: Amounts
    selectors: tuple[Selector, ...] = ()
    """Alternatives in order of preference; none at all means that labels are not asked for (AS:G-7)."""
    affinity: tuple[str, str] | None = None
    """(label, value): together with the others of the same pair on one node (STRICT_PACK, AS:G-8)."""
    anti_affinity: tuple[str, str] | None = None
    """(label, value): never two of the same pair on one node (STRICT_SPREAD)."""


@dataclass(frozen=True, slots=True)
class Demand:
    """`count` times the same request."""

    request: Request
    count: int = 1


@dataclass(frozen=True, slots=True)
class Gang:
    """Bundles that are placed all at once or not at all: one placement group (AS:G-8)."""

    details: str
    """`<placement group id>:<strategy>|<state>`, reported back as it came."""
    bundles: tuple[Request, ...] = ()


@dataclass(frozen=True, slots=True)
class GcsState:
    """All that Ray says at one moment."""

    nodes: tuple[RayNode, ...] = ()
    tasks: tuple[Demand, ...] = ()
    gangs: tuple[Gang, ...] = ()
    constraint: tuple[Demand, ...] | None = None
    """`request_resources()`; None when nobody called it, empty when the last call was empty (AS:G-9)."""
    version: int = 0
    """The GCS's own counter, to be reported back; it says nothing about change (AS:G-1)."""
    session: str = ""
    """Changes when the GCS lost its memory."""
    problems: tuple[str, ...] = ()
    """What was left out because it cannot be, one sentence per kind of nonsense with a count and the first example."""


class DrainReason(StrEnum):
    """Why a node should leave; the raylet refuses an idle termination while it is busy, a preemption never (AS:G-12)."""

    IDLE_TERMINATION = "IDLE_TERMINATION"
    PREEMPTION = "PREEMPTION"


@dataclass(frozen=True, slots=True)
class Drained:
    """What the GCS answered to a drain; a node that it does not know counts as accepted (AS:G-12)."""

    is_accepted: bool
    message: str = ""
    """Why not."""


@dataclass(frozen=True, slots=True)
class HeadDirectories:
    """Where Ray on the head node keeps its files."""

    temp_dir: str
    session_dir: str

    @property
    def logs(self) -> str:
        """Of the latest session, whichever that will be: where monitor.log belongs (AS §1.1)."""
        return f"{self.temp_dir}/session_latest/logs"


@dataclass(frozen=True, slots=True)
class Instance:
    """One node that exists, or is on its way: a pod, the Ray node in it, or a replica asked for and not yet seen."""

    instance_id: str
    """The pod's name; for a replica without a pod yet a name of our own, the same in every tick."""
    node_type: str
    """Empty for an unmanaged Ray node: capacity that is never started, stopped, drained or counted (V-9)."""
    status: Status
    is_head: bool = False
    pod: str = ""
    node_id: str = ""
    total: Amounts = ()
    available: Amounts = ()
    labels: Labels = ()
    """Static labels of the Ray node; dynamic ones apart, because they name placement groups."""
    dynamic_labels: Labels = ()
    idle_ms: int = 0
    replica: str = ""
    """Of a multi-host group: the name of the replica whose host this is."""
    is_idle_blocked: bool = False
    """Never to be ended as idle, whatever the clock says."""

    @property
    def is_unmanaged(self) -> bool:
        """Whether somebody joined it to the cluster by hand."""
        return not self.node_type


OnProgress: TypeAlias = Callable[[], None]
"""Called again and again during a long decision, for those who have to know that it goes on."""


def unwatched() -> None:
    """Where nobody has to know."""


@dataclass(frozen=True, slots=True)
class SchedulingInput:
    """All that a decision may depend on."""

    types: tuple[NodeType, ...]
    """Head first, then the groups in the order of the spec: ties go to the earlier (AS:C-1, AS:S-25)."""
    instances: tuple[Instance, ...] = ()
    tasks: tuple[Demand, ...] = ()
    gangs: tuple[Gang, ...] = ()
    constraint: tuple[Demand, ...] | None = None
    max_nodes: int = 0
    """Of the whole cluster, head included; 0 means no limit (AS:C-3)."""
    idle_timeout_s: float | None = 60.0
    availability: Mapping[str, float] = field(default_factory=dict)
    """By type, only types that failed lately (AS:S-22)."""
    recoverable: Mapping[str, float] = field(default_factory=dict)
    """By type (AS:S-23)."""
    has_gpu_conservation: bool = True
    """Rather no node with accelerators for work that names none of them (AS §2.4 score 2; AUTOSCALER_CONSERVE_GPU_NODES)."""
    full: frozenset[str] = frozenset()
    """Types of which nothing is `available` for want of room alone: they may be asked for what nothing else can hold."""
    waiting: tuple[Instance, ...] = ()
    """Instances of such types that wait for room, beside `instances`: they hold what nothing else can hold."""
    is_ray_exact: bool = False
    """Decide bit for bit as Ray 2.60, defects included (AS §8); for comparison only."""


@dataclass(frozen=True, slots=True)
class Termination:
    """One instance that should end."""

    instance_id: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class Decision:
    """What should change, and what cannot be met."""

    launches: Mapping[str, int] = field(default_factory=dict)
    """Nodes to launch by type, only where there are any."""
    terminations: tuple[Termination, ...] = ()
    unplaced: tuple[Demand, ...] = ()
    """Single requests without a place now: impossible ones and those that only find no room (B-14)."""
    impossible: tuple[Demand, ...] = ()
    """Those of `unplaced` that no empty node of any type could ever hold."""
    unplaced_gangs: tuple[Gang, ...] = ()
    impossible_gangs: tuple[Gang, ...] = ()
    is_constraint_unmet: bool = False
    cluster_resources: Amounts = ()
    """Totals of everything that will be there, launches included (AS:S-32)."""
    needed: frozenset[str] = frozenset()
    """Ids of instances that hold a request or a bundle of this decision, in either book."""
    error: str = ""
    """Only with `is_ray_exact`: the exception with which Ray's scheduler fails on this input (B-1)."""


# --- what is reported to the GCS (AS §5.3) ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """Nodes of one type asked for and not seen yet; one entry per node makes `ray status` count right (AS §5.5)."""

    node_type: str
    count: int = 1
    requested_at_s: int = 0
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class PendingInstance:
    """A pod without its Ray node; `details` is the text behind it in `ray status`."""

    node_type: str
    instance_id: str
    address: str = ""
    details: str = ""


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """A launch that came to nothing, and why."""

    node_type: str
    count: int
    reason: str
    started_at_s: int = 0
    failed_at_s: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """The autoscaler's own state, for `ray status`, the dashboard and warnings to drivers."""

    gcs_version: int
    """Of the state this report answers."""
    version: int
    """Never lower than that of an earlier report, or the GCS drops it (B-5)."""
    pending_requests: tuple[PendingRequest, ...] = ()
    pending_instances: tuple[PendingInstance, ...] = ()
    failed_requests: tuple[FailedRequest, ...] = ()
    infeasible: tuple[Demand, ...] = ()
    """Only what no node type could ever hold: Ray warns, and may cancel tasks, by this list (AS:G-11)."""
    infeasible_gangs: tuple[Gang, ...] = ()
    infeasible_constraint: tuple[Demand, ...] | None = None
