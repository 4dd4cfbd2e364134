"""What is shared, among whom, and what was decided?

The nouns of fair sharing, blind to kinds (D16): anonymous participants with a floor and a ceiling, nodes with room, what
strangers want, and the resizes that come out, each with its reason. Amounts are whole numbers: `cpu` in thousandths,
everything else in its own unit (bytes, GPUs, pods), so that sums are exact. Frozen values, no Kubernetes types. Filled by
`sharing/pools.py`, decided upon by `elastic/fairness.py`; rules TJ §3, §4.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple, TypeAlias

Amounts: TypeAlias = Mapping[str, int]
"""Resource name -> how much; what is not named is zero. A pod counts 1 of `pods`."""

PODS: Final = "pods"
CPU: Final = "cpu"
MEMORY: Final = "memory"


class ParticipantId(NamedTuple):
    """Who it is: kind as the API spells it, namespace, name. The order breaks the last ties."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


# --- where a pod may go ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taint:
    """One taint of a node; only NoSchedule and NoExecute keep a pod away."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """One toleration of a pod, as Kubernetes reads it: an empty key with `Exists` tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on a node's labels (In, NotIn, Exists, DoesNotExist, Gt, Lt), or on its fields if `is_field`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    is_field: bool = False


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where a pod may run: all of `node_selector`, and one of the `terms` (each a conjunction) where there are any."""

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[tuple[Requirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """What one pod asks for: `requests` count for placement; `limits`, a container without one by its request, for room."""

    requests: Amounts
    limits: Amounts = field(default_factory=dict)
    constraints: Constraints = Constraints()


@dataclass(frozen=True, slots=True)
class Node:
    """One node and what is requested of it by the pods bound there, ours and strangers', terminating ones too."""

    name: str
    allocatable: Amounts
    used: Amounts = field(default_factory=dict)
    leaving: Amounts = field(default_factory=dict)
    """The part of `used` that is about to be free: pods that terminate, or that are beyond what their job wants."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    is_usable: bool = True
    """Ready and not cordoned; the room of others counts for nobody."""


# --- who takes part --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Core:
    """Pods a participant needs whatever its size (a master, fixed parameter servers); `missing` have no node yet."""

    name: str
    shape: Shape
    count: int
    missing: int = 0


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
    """Their nodes in the order in which fewer of them would be removed; empty: any of `placed` is assumed."""

    def wanted(self, instances: int) -> int:
        """How many go with so many instances."""
        return min(self.ceiling, max(self.floor, -(-instances // self.per)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Participant:
    """Something elastic: between `floor` and `ceiling` instances of one shape; fixed where the two are equal."""

    id: ParticipantId
    floor: int
    ceiling: int
    current: int
    """How many are wanted now; 0 for a gang that has not been admitted."""
    shape: Shape
    priority: int = 0
    created_at: str = ""
    """RFC 3339; who is older comes first among equals."""
    is_gang: bool = False
    """Begins only when its floor fits (GPU jobs); others begin at once, on the chance of room (TJ §3 row 11)."""
    core: tuple[Core, ...] = ()
    companion: Companion | None = None
    placed: Mapping[str, int] = field(default_factory=dict)
    """Node -> instances there that count towards `current`; those that are leaving are not in it."""
    leaves_first: tuple[str, ...] = ()
    """The nodes of its instances in the order in which a shrink would remove them (highest index first, as many as are
    known): only the room that is really freed counts. Empty: any of `placed` is assumed. What has no node goes before."""
    uncreated: int = 0
    """How many of `current` have no pod yet: where a quota is below zero they are refused, and nobody gives room for them."""
    is_forbidden: bool = False
    """Whether the API refuses to create its pods: those that have none hold no room, and nobody gives any for them."""
    is_repeatedly_forbidden: bool = False
    """Whether it refused them several times in a row: those above the floor are taken back."""
    unschedulable: int = 0
    """How many of `current` have pods for which kube-scheduler has found no node."""
    is_doubted: bool = False
    """Whether kube-scheduler finds no node for them although nodes have had room for a while: they hold none any more."""
    unplaced_for_long: int = 0
    """How many of `current` have pods that found no node for `NO_NODE_S`."""
    sizes: tuple[int, ...] = ()
    """Sizes it may have, ascending; empty: every size."""
    step: int = 1
    """Sizes are the floor and, from `step_from` on, every `step` up to the ceiling."""
    step_from: int | None = None
    """Where steps are counted from, if not from the floor."""
    may_grow: bool = True
    may_shrink: bool = True
    """False in a cool-down, in its minimum run time, or while its last resize is under way; clamping does not ask."""
    is_settled: bool = True
    """False while its last resize is under way: pods are leaving, or not made yet. Its share of what becomes free is kept for
    it meanwhile, and it gives to nobody who is merely less fulfilled (TJ §3 row 17)."""
    is_scaling_enabled: bool = True
    """False where the user wants it left alone: it keeps its size, and nobody takes from it."""
    is_accounted_by_limits: bool = True
    """Whether its growth also has to fit by limits (TJ §3 row 5)."""
    rebalances: bool = False
    """Whether it takes part in moves between unequal jobs with nobody waiting (TJ §3 row 16)."""
    is_fresh: bool = False
    """Whether it was resized a moment ago: its share of what becomes free is kept for it while it rests, and evening out goes
    on with it down to the last step."""
    yields: bool = False
    """Whether it gives what is above its floor to pods of strangers with a higher priority (TJ §3 row 6c)."""

    @property
    def is_elastic(self) -> bool:
        """Whether there is anything to decide."""
        return self.floor < self.ceiling

    @property
    def unplaceable(self) -> int:
        """How many of `current` will get no node, however much room there is."""
        return (self.uncreated if self.is_forbidden else 0) + (self.unschedulable if self.is_doubted else 0)

    @property
    def wanted_in_vain(self) -> int:
        """How many of those are taken back: what the API refused for the first time may be accepted at the next try."""
        refused = self.uncreated if self.is_repeatedly_forbidden else 0
        return refused + (self.unschedulable if self.is_doubted else 0)

    def score_at(self, instances: int) -> Fraction:
        """The fulfilment score at that size; 1 where floor and ceiling are equal (TJ §3 row 13)."""
        return Fraction(instances - self.floor, self.ceiling - self.floor) if self.is_elastic else Fraction(1)


@dataclass(frozen=True, slots=True)
class Stranger:
    """Pods of somebody else that wait for a node: if they fit, their room is theirs; if not, only those who offered it give."""

    shape: Shape
    count: int = 1
    priority: int = 0
    created_at: str = ""
    is_unschedulable: bool = False
    """Whether kube-scheduler has looked and found no node; before that nobody gives anything for them."""
    is_doubted: bool = False
    """Whether it finds none although nodes have had room for a while: no room is kept for them any more."""
    name: str = ""
    """Namespace and name of the oldest, for sentences."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What one ResourceQuota still allows in a namespace; `requests.cpu` is spelled `cpu`, `limits.cpu` stays.

    What is wanted already and has no pod yet is taken off: below zero, some of it will be refused.
    """

    namespace: str
    name: str
    free: Amounts
    applies_to: frozenset[ParticipantId] | None = None
    """Whose pods count against it; None: those of all participants of the namespace."""

    def is_for(self, id_: ParticipantId) -> bool:
        """Whether the pods of that participant count against it."""
        return self.namespace == id_.namespace and (self.applies_to is None or id_ in self.applies_to)


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How the pool is shared."""

    max_load_percent: Mapping[str, int] = field(default_factory=dict)
    """Resource -> how much of it growth may fill at most; 100 where nothing is said (TJ §3 row 15)."""
    gpus: frozenset[str] = frozenset({"nvidia.com/gpu", "amd.com/gpu"})
    rebalance_gap: Fraction = Fraction(1, 10)
    """Scores have to lie further apart than that before anybody begins to give without need; then it goes until they are even.

    In a simulated day (docs/benchmarks-training.md) a larger one saves little, and a smaller one makes nothing fairer.
    """


@dataclass(frozen=True, slots=True)
class Pool:
    """One snapshot: everything a plan may look at."""

    nodes: tuple[Node, ...]
    participants: tuple[Participant, ...]
    strangers: tuple[Stranger, ...] = ()
    quotas: tuple[Quota, ...] = ()
    charged: Amounts = field(default_factory=dict)
    """What counts against the sum of usable nodes for growth by limits: the limits of all instances, cores and companions
    that there are, and the requests of every other pod (TJ §3 row 5)."""
    options: PoolOptions = PoolOptions()


# --- what is decided -------------------------------------------------------------------------------------------------

ADMITTED: Final = "Admitted"
"""A gang begins: from 0 to its floor."""
REACHING_MINIMUM: Final = "ReachingMinimum"
GROWING: Final = "Growing"
ABOVE_MAXIMUM: Final = "AboveMaximum"
SIZE_NOT_ALLOWED: Final = "SizeNotAllowed"
"""Its size was none of those it may have, and the next larger one has no room now."""
RECLAIMED: Final = "Reclaimed"
"""Taken for another one, named in `for_id`, that needs it to reach its floor."""
REBALANCED: Final = "Rebalanced"
NO_ROOM: Final = "NoRoom"
"""Taken back, because instances above the floor found no node for `NO_NODE_S`, or would wait behind pods of strangers."""
NO_NODE_S: Final = 20
"""SC:S25 lets no pod pend for 30 s, and a pass, the job's controller and the pod's end come after this. kube-scheduler looks
at a pod again after 10 s at the latest; who is still without a node holds a place in its queue and in the plan that somebody
else could use."""
UNSCHEDULABLE: Final = "Unschedulable"
"""Taken back, because kube-scheduler finds no node for instances although nodes have room by what they ask for."""
CREATION_FORBIDDEN: Final = "CreationForbidden"
"""Taken back, or waiting, because the API refuses to create instances."""
YIELDED: Final = "Yielded"
"""Given to pods of strangers with a higher priority that have no node."""

INSUFFICIENT: Final = "InsufficientResources"
INSUFFICIENT_GPU: Final = "InsufficientGPU"
FRAGMENTED: Final = "Fragmented"
"""The sum would do, but no single node has it."""
QUOTA_EXCEEDED: Final = "QuotaExceeded"
UNSATISFIABLE: Final = "Unsatisfiable"
"""No node could ever hold one, even empty: nobody is drained for it."""
HIGHER_PRIORITY: Final = "HigherPriority"
"""Those who hold what it needs have a higher priority."""
COOLING_DOWN: Final = "CoolingDown"
"""Those who could give are in a cool-down."""
CAPACITY_UNKNOWN: Final = "CapacityUnknown"


@dataclass(frozen=True, slots=True)
class Resize:
    """One participant changes its size. They are carried out in order; shrinks come before the growth they make room for."""

    id: ParticipantId
    before: int
    after: int
    reason: str
    message: str
    for_id: ParticipantId | None = None
    companions: tuple[int, int] | None = None
    """Before and after, where pods come with the instances."""
    is_released: bool = True
    """False: the room is promised, but pods are still in it. Growth is written only when they are gone (TJ §4 step 4)."""
    nodes: Mapping[str, int] = field(default_factory=dict)
    """Where the plan assumes that instances come (positive) or go (negative); kube-scheduler decides in the end."""
    full_message: str = ""
    """`message` with the names of other namespaces, which only the operator's log and `raytide plan` may have."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a participant is below its floor (`is_below_floor`), or not larger although its ceiling is higher."""

    id: ParticipantId
    reason: str
    message: str
    is_below_floor: bool = True
    is_room_kept: bool = False
    """Whether pods of strangers keep what it is short of."""
    full_message: str = ""
    """`message` with the names of other namespaces, as in `Resize`."""


@dataclass(frozen=True, slots=True)
class Division:
    """A plan: deterministic, and a fixed point once carried out."""

    resizes: tuple[Resize, ...] = ()
    """Per participant at most one shrink, then one released growth, then one that is not; each begins where the one before
    ends. Whoever writes follows them in order and stops, for that participant, at the first that is not released."""
    waiting: tuple[Waiting, ...] = ()
    """At most one per participant, in the order of ids."""
    contradicted: frozenset[ParticipantId | str] = frozenset()
    """Whose pods have free room in this plan although kube-scheduler found no node for them: participants, and pods of
    strangers by name. If that lasts, something else than room is missing."""
