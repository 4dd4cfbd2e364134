"""Model of fair sharing: what is shared, among which participants, and what was decided.

Independent of Kubernetes kinds (D16): anonymous participants with a minimum (`floor`) and a maximum (`ceiling`), nodes
with capacity, pending pods of other workloads, and the resulting resizes with their reasons. Amounts are whole numbers:
`cpu` in thousandths, everything else in its own unit (bytes, GPUs, pods), so that sums are exact. Frozen values, no
Kubernetes types. Filled by `fairshare/snapshot.py`, decided upon by `allocate.py`; rules TJ §3, §4.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from raytide.api.pod_requirements import ANYWHERE, Amounts, PodConstraints
from raytide.api.tenants import Tenant

MEMORY: Final = "memory"


class ParticipantId(NamedTuple):
    """Identity of a participant: kind as the API spells it, namespace, name. The order breaks the last ties."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# --- nodes and pods --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taint:
    """One taint of a node; only NoSchedule and NoExecute keep a pod away."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Shape:
    """What one pod requests: `requests` for placement, `limits` (the request where a container has none) for load."""

    requests: Amounts
    limits: Amounts = field(default_factory=dict)
    constraints: PodConstraints = ANYWHERE


@dataclass(frozen=True, slots=True)
class Node:
    """One node and what the pods bound there request, those of other workloads and terminating ones included."""

    name: str
    allocatable: Amounts
    used: Amounts = field(default_factory=dict)
    terminating: Amounts = field(default_factory=dict)
    """The part of `used` that is about to be free: pods that are terminating, or surplus pods that will be deleted."""
    charged: Amounts = field(default_factory=dict)
    """What pods there count against the load by limits: the limits of participants' pods, the requests of all others
    (TJ §3 row 5)."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    is_usable: bool = True
    """Ready and not cordoned; other nodes have no capacity for any pod."""


# --- participants ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Core:
    """Pods a participant needs whatever its size (a master, fixed parameter servers); `missing` have no node yet."""

    name: str
    shape: Shape
    count: int
    missing: int = 0
    placed: Mapping[str, int] = field(default_factory=dict)
    """Node -> how many are there."""
    to_create: int = 0
    gated: int = 0
    """How many of `missing` have no pod yet, and how many have scheduling gates."""


@dataclass(frozen=True, slots=True)
class Companion:
    """Pods that come with the instances: ceil(instances / per), within [floor, ceiling] (TJ §3 row 4, `Ratio`)."""

    shape: Shape
    per: int
    floor: int
    ceiling: int
    current: int
    placed: Mapping[str, int] = field(default_factory=dict)
    leaves_first: tuple[str, ...] = ()
    """Their nodes in the order in which a shrink removes them; empty: any of `placed` is assumed."""
    to_create: int = 0
    gated: int = 0
    """How many without a node have no pod yet, and how many have scheduling gates."""

    def wanted(self, instances: int) -> int:
        """How many go with that many instances."""
        return min(self.ceiling, max(self.floor, -(-instances // self.per)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """An elastic workload: between `floor` and `ceiling` instances of one shape; of fixed size if the two are equal."""

    id: ParticipantId
    floor: int
    """At least 1 for a gang, unless its maximum is 0."""
    ceiling: int
    current: int
    """How many instances are wanted now; 0 for a gang that has not been admitted."""
    shape: Shape
    priority: int = 0
    created_at: str = ""
    """RFC 3339; the older one comes first among equals."""
    is_gang: bool = False
    """Starts only when its minimum fits (GPU jobs); others start at once, even without capacity (TJ §3 row 11)."""
    core: tuple[Core, ...] = ()
    companion: Companion | None = None
    placed: Mapping[str, int] = field(default_factory=dict)
    """Node -> instances there that count towards `current`, without those that are terminating or surplus."""
    leaves_last: str = ""
    """The node of the instance that leaves after all others (trainer 0, where they meet); empty if it has none. The plan
    chooses freely among the others; instances without a node leave before."""
    pods_to_create: int = 0
    """How many of `current` have no pod yet: below a zero quota they are rejected, and no victim shrinks for them."""
    gated: int = 0
    """How many of `current` have scheduling gates: kube-scheduler does not look at them, and they hold no capacity."""
    is_forbidden: bool = False
    """Whether the API server rejects its pods: missing ones hold no capacity and have no victims."""
    is_repeatedly_forbidden: bool = False
    """Whether it rejected them several times in a row: those above the minimum are released."""
    unschedulable: int = 0
    """How many of `current` have pods for which kube-scheduler has found no node."""
    is_doubted: bool = False
    """Whether its pods have got no node although nodes have had capacity for a while: those hold none any more."""
    is_unproven: bool = False
    """Whether its pods have scheduling gates, or have failed to get a node: it may not preempt, and has no reservation."""
    retries: bool = False
    """Whether its last growth failed: the next one is a single step."""
    unplaced_for_long: int = 0
    """How many of `current` have pods without a node for `NO_NODE_S`."""
    sizes: tuple[int, ...] = ()
    """Sizes it may have, ascending; empty: every size."""
    step: int = 1
    """Sizes are the minimum and, from `step_from` on, every `step` up to the maximum."""
    step_from: int | None = None
    """Where steps are counted from, if not from the minimum."""
    may_await_nodes: bool = True
    """Whether a gang that has not been admitted may be, although there is no capacity for it, where nodes are autoscaled."""
    may_grow: bool = True
    grows_to: int | None = None
    """The size that a client requests, which is more than `current`: it grows no further in this plan. None: to its maximum."""
    grows_soon: bool = False
    """Whether a cooldown ends soon that keeps it from growing: meanwhile its share of free capacity is kept for it."""
    may_shrink: bool = True
    """False in a cooldown, in the minimum run time, or while the last resize is under way; clamping ignores it."""
    is_settled: bool = True
    """False while its last resize is under way: pods are leaving, or not created yet. Meanwhile its share of free
    capacity is kept for it, and it does not shrink for a participant that is merely less fulfilled (TJ §3 row 17)."""
    is_scaling_enabled: bool = True
    """False if the user disabled scaling: it keeps its size, and nothing is reclaimed from it."""
    uses_limits: bool = True
    """Whether its growth also has to fit by limits (TJ §3 row 5)."""
    rebalances: bool = False
    """Whether it takes part in rebalancing, as a donor and as a receiver (TJ §3 row 16)."""
    is_reservation_lapsed: bool = False
    """Whether it has had a reservation for so long that those behind it in line come first for a while."""
    reserved_nodes: tuple[str, ...] = ()
    """Nodes that the last plan reserved for it; a new reservation keeps them as far as they could hold its pods."""
    may_preempt: bool = True
    """Whether other participants may shrink for it: for its minimum, and for its growth. Otherwise it takes what is free."""
    tenant: str = ""
    """The name of its tenant; one that the snapshot does not have counts as none (`tenants.py`)."""
    yields: bool = False
    """Whether what is above its minimum yields to pods of other workloads with a higher priority (TJ §3 row 6c)."""

    @property
    def is_elastic(self) -> bool:
        """Whether its size can change."""
        return self.floor < self.ceiling

    @property
    def has_unbound(self) -> bool:
        """Whether it has pods without a node that kube-scheduler may bind."""
        unbound = self.current - sum(self.placed.values()) - self.pods_to_create - self.gated
        if self.companion is not None:
            companion = self.companion
            unbound += companion.current - sum(companion.placed.values()) - companion.to_create - companion.gated
        return unbound + sum(core.missing - core.to_create - core.gated for core in self.core) > 0

    @property
    def takes_by_rebalancing(self) -> bool:
        """Whether it takes part in rebalancing as a receiver."""
        return self.rebalances and self.may_preempt

    @property
    def wanted_in_vain(self) -> int:
        """How many of `current` are released because they get no node, whatever the capacity.

        What the API server rejected once may be accepted at the next try.
        """
        rejected = self.pods_to_create if self.is_repeatedly_forbidden else 0
        return rejected + (self.unschedulable if self.is_doubted else 0)

    def score_at(self, instances: int) -> Fraction:
        """The fulfilment score at that size; 1 if minimum and maximum are equal (TJ §3 row 13)."""
        return Fraction(instances - self.floor, self.ceiling - self.floor) if self.is_elastic else Fraction(1)


@dataclass(frozen=True, slots=True)
class ExternalPods:
    """Pending pods of another workload: they take free capacity; beyond that only `yields` participants shrink."""

    shape: Shape
    count: int = 1
    priority: int = 0
    created_at: str = ""
    is_unschedulable: bool = False
    """Whether kube-scheduler has tried and found no node; before that no participant shrinks for them."""
    may_preempt: bool = True
    """Whether participants may shrink for them: not for an hour after they got no node. Those that yield do so for pods with
    `preemptionPolicy: Never`, too."""
    is_doubted: bool = False
    """Whether they have got none although nodes have had capacity for a while: no capacity is kept for them any more."""
    name: str = ""
    """Namespace and name of the oldest, for messages."""
    owner_uid: str = ""
    """uid of its controlling owner, for the record."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What one ResourceQuota still allows in a namespace; `requests.cpu` is named `cpu`, `limits.cpu` stays.

    Wanted pods that do not exist yet are subtracted: below zero, some of them will be rejected.
    """

    namespace: str
    name: str
    free: Amounts
    applies_to: frozenset[ParticipantId] | None = None
    """Participants whose pods count against it; None: all participants of the namespace."""

    def is_for(self, id_: ParticipantId) -> bool:
        """Whether the participant's pods count against it."""
        return self.namespace == id_.namespace and (self.applies_to is None or id_ in self.applies_to)


@dataclass(frozen=True, slots=True)
class AllocationOptions:
    """Options for sharing the pool."""

    max_load_percent: Mapping[str, int] = field(default_factory=dict)
    """Resource -> how much of it growth may fill at most; 100 by default (TJ §3 row 15)."""
    gpus: frozenset[str] = frozenset({"nvidia.com/gpu", "amd.com/gpu"})
    rebalance_gap: Fraction = Fraction(1, 5)
    """The part of a donor's score by which a receiver has to be behind to take one more step from it.

    A part, and no difference of scores: where many participants share a cluster all scores are low, and a new one is to get
    its share there too. docs/benchmarks-training.md has resizes and fairness with other values.
    """
    has_node_autoscaler: bool = False
    """Whether nodes are added for pods that get none: then a gang is admitted without capacity, too."""
    victims_per_instance: int = 8
    """How many instances may go at most for one that another participant gains above its minimum."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """One snapshot: the whole input of a plan."""

    nodes: tuple[Node, ...]
    participants: tuple[Participant, ...]
    external_pods: tuple[ExternalPods, ...] = ()
    quotas: tuple[Quota, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    """Empty: there are no tenants, and priorities and scores alone decide."""
    options: AllocationOptions = AllocationOptions()


# --- decisions -------------------------------------------------------------------------------------------------------

NO_NODE_S: Final = 20
"""Seconds. SC:S25 lets no pod pend for 30 s, and a pass, the job's controller and the pod's end come after this.
kube-scheduler retries a pod after 10 s at the latest; a pod without a node by then holds a place in its queue and in
the plan that another pod could use."""

INSUFFICIENT: Final = "InsufficientResources"
"""No node has enough free resources for one more trainer, possibly because they are reserved for pending pods of other workloads."""
INSUFFICIENT_GPU: Final = "InsufficientGPU"
"""No node has enough free GPUs for one more trainer, possibly because they are reserved for pending pods of other workloads."""
FRAGMENTED: Final = "Fragmented"
"""The nodes together have enough free resources, for growth those of a useful part of it, but no single node has."""
QUOTA_EXCEEDED: Final = "QuotaExceeded"
"""A ResourceQuota of the namespace is used up, or the nominal quota and borrowing limit of its tenant."""
UNSATISFIABLE: Final = "Unsatisfiable"
"""No node could run a trainer even if it were empty; no job is scaled down for it."""
HIGHER_PRIORITY: Final = "HigherPriority"
"""The jobs that hold what it needs have a higher priority."""
HELD_BY_RANK_ZERO: Final = "HeldByRankZero"
"""Trainer 0 of another job is on the only node that could be freed; it ends only with its job."""
CAPACITY_RESERVED: Final = "CapacityReserved"
"""The capacity that it needs is reserved for a job ahead of it in line."""
COOLING_DOWN: Final = "CoolingDown"
"""The jobs that could be scaled down for it were resized a moment ago."""
SCHEDULING_GATED: Final = "SchedulingGated"
"""Pods of the job have scheduling gates: they take no capacity, and no job is scaled down for them."""
TOO_MANY_SHAPES: Final = "TooManyShapes"
"""The pods of its namespace differ in more requests, selectors, affinities and tolerations than one plan considers."""
CAPACITY_UNKNOWN: Final = "CapacityUnknown"
"""The operator may not read nodes, pods or, with tenants, namespaces: jobs are only kept within their bounds."""

NODES_HELP: Final = frozenset(
    {CAPACITY_RESERVED, FRAGMENTED, HELD_BY_RANK_ZERO, HIGHER_PRIORITY, INSUFFICIENT, INSUFFICIENT_GPU, UNSATISFIABLE}
)
"""Reasons to wait that another node would end. What cools down is given soon."""


@dataclass(frozen=True, slots=True)
class Resize:
    """A change of one participant's size. Carried out in order; shrinks come before the growth that needs them."""

    id: ParticipantId
    before: int
    after: int
    reason: str
    message: str
    for_id: ParticipantId | None = None
    companions: tuple[int, int] | None = None
    """Before and after, if pods come with the instances."""
    is_released: bool = True
    """False: the capacity is reserved but still in use. Growth is written only when it is free (TJ §4 step 4)."""
    nodes: Mapping[str, int] = field(default_factory=dict)
    """Where the plan assumes that instances come (positive) or go (negative). kube-scheduler makes the final choice
    of where they come; those that go are removed on these nodes (fairshare/victims.py)."""
    full_message: str = ""
    """`message` with the names of other namespaces, which only the operator's log and `raytide plan` may have."""
    core_nodes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Name of a `Core` -> node -> how many of its missing pods the plan places there, for a participant that starts."""
    receivers: tuple[ParticipantId, ...] = ()
    """All participants that receive what a shrink releases; `for_id` is the first."""
    for_pods: tuple[str, ...] = ()
    """Pods of other workloads that receive it, by `ExternalPods.name`."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a participant is below its minimum (`is_below_floor`), or not larger although its maximum is higher."""

    id: ParticipantId
    reason: str
    message: str
    is_below_floor: bool = True
    is_capacity_kept: bool = False
    """Whether what it lacks is kept for pods of other workloads."""
    full_message: str = ""
    """`message` with the names of other namespaces, as in `Resize`."""
    full_holder: str = ""
    """Who holds what it lacks, with names of other namespaces; empty where the reason names nobody."""
    reserved_nodes: tuple[str, ...] = ()
    """Nodes with capacity that those behind it in line do not get (`reservations.py`), in the order of names."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What holder and fix of the reason name (diagnosis/catalogue.py), without names of other namespaces."""

    @property
    def is_reserving(self) -> bool:
        """Whether it has a reservation."""
        return bool(self.reserved_nodes)


@dataclass(frozen=True, slots=True)
class Allocation:
    """A plan: deterministic, and a fixed point once carried out."""

    resizes: tuple[Resize, ...] = ()
    """Per participant at most one shrink, then one released growth, then one that is not; each begins where the one
    before ends. The writer follows them in order and stops, for that participant, at the first that is not released."""
    waiting: tuple[Waiting, ...] = ()
    """At most one per participant, in the order of ids."""
    contradicted: frozenset[ParticipantId | str] = frozenset()
    """Participants, and pods of other workloads by name, that have free capacity in this plan although kube-scheduler
    found no node for their pods. If that lasts, something other than capacity is missing."""
