"""Node types of the cluster and their limits, read from the RayCluster spec.

Takes the raw spec and the live Ray nodes. Returns the node types in the order that decides ties (AS:C-1 to C-12): head
first, then the groups. A group that cannot be read is skipped with a `Problem` that names the field and the fix; the
others are unaffected (B-10, B-20). Planned nodes have what the spec determines for every node of the group, completed
from live nodes (B-12, V-8). Pure; never raises, whatever the JSON holds. Called by cluster_state.py.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raytide.api.autoscaler_decision import clamp_between
from raytide.api.quantity import MAX_INT32, Quantity, QuantityError
from raytide.autoscaler.model import (
    HEAD_TYPE,
    PLACEMENT_GROUP_RESOURCE,
    RESOURCE_UNIT_SCALING,
    Amounts,
    GcsState,
    Labels,
    NodeType,
    RayNode,
    Request,
    labels_of,
)
from raytide.autoscaler.state.accelerators import ACCELERATOR_LABEL, RESOURCE, accelerator_of
from raytide.autoscaler.state.node_resources import (
    CPU,
    TPU_POD_TYPE,
    TPU_SLICE_NAME,
    TPU_TOPOLOGY_LABEL,
    TPU_WORKER_ID,
    FieldError,
    NodeResources,
    mapping,
    node_resources,
)

DEFAULT_IDLE_TIMEOUT_S: Final = 60.0
CONSERVATIVE: Final = "Conservative"
NODE_GROUP_LABEL: Final = "ray.io/node-group"
OWN_LABELS: Final = frozenset(
    {
        *("ray.io/node-id", "ray.io/availability-zone", "ray.io/availability-region"),
        *(TPU_SLICE_NAME, TPU_WORKER_ID),
    }
)
"""Labels in which nodes of one group differ, so that planned nodes do not get them."""
TYPES_LABELS: Final = frozenset({"ray.io/accelerator-type", "ray.io/market-type", TPU_TOPOLOGY_LABEL, TPU_POD_TYPE})
"""Labels that follow from the machine type: one live node is enough to learn them."""
OWN_RESOURCES: Final = re.compile(rf"node:.*|object_store_memory|{PLACEMENT_GROUP_RESOURCE.pattern}")
"""Resources that belong to one node or to a placement group on it."""

_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY: Final = re.compile(
    r"(?:(?=[^/]{1,253}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with a group of the spec and its fix; an empty group means the whole cluster."""

    group: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeTypes:
    """All node types and the cluster-wide limits."""

    types: tuple[NodeType, ...]
    """Head first, then every readable group in spec order (AS:C-1)."""
    problems: tuple[Problem, ...] = ()
    max_nodes: int = 0
    """Of the cluster, head included (AS:C-3)."""
    idle_timeout_s: float | None = DEFAULT_IDLE_TIMEOUT_S
    is_conservative: bool = False
    """`upscalingMode: Conservative`: a group at most doubles at a time (AS:C-5); any other mode has no limit."""
    skipped: frozenset[str] = frozenset()
    """Groups that could not be read: their nodes are capacity, but they are not scaled."""
    suspended: frozenset[str] = frozenset()
    """Groups with `suspend: true`: max 0, and only the operator removes their pods; their `replicas` stay."""
    desired_hosts: Mapping[str, int] = field(default_factory=dict)
    """By group of `types`, the pods an operator makes of the spec alone: `replicas` within min and max (RC:WG-2)."""

    def by_name(self) -> dict[str, NodeType]:
        """The types by name."""
        return {node_type.name: node_type for node_type in self.types}

    def problems_by_group(self) -> dict[str, str]:
        """Problems by group, joined into one message."""
        found: dict[str, list[str]] = {}
        for problem in self.problems:
            found.setdefault(problem.group, []).append(problem.message)
        return {group: "; ".join(messages) for group, messages in found.items()}


def node_types(
    spec: Mapping[str, Any],
    live: Sequence[RayNode] = (),
    asked: Collection[str] = frozenset(),
    topologies: Collection[str] = frozenset(),
) -> NodeTypes:
    """Read the spec; `asked` are the resources that demands name (`asked_resources`).

    `topologies` are the labels of topology strategies. They are not learnt from live nodes: that all nodes of a group are
    in one rack does not tell the rack of the next one.
    Of the resources only live nodes report, such as `accelerator_type:A100`, planned nodes get those that are
    requested, so that they change a type's score only where they matter (B-12).
    """
    reading = _Reading(_by_type(live), frozenset(asked), OWN_LABELS.union(topologies))
    options = mapping(spec.get("autoscalerOptions"))
    idle_timeout_s = reading.seconds(options.get("idleTimeoutSeconds"), "", "autoscalerOptions.idleTimeoutSeconds")
    head = reading.head(mapping(spec.get("headGroupSpec")))
    groups = [group for entry in reading.entries(spec) if (group := reading.group(*entry)) is not None]
    return NodeTypes(
        types=(head, *groups),
        problems=tuple(reading.problems),
        max_nodes=sum(group.max_nodes for group in groups) + 1,
        idle_timeout_s=DEFAULT_IDLE_TIMEOUT_S if idle_timeout_s is None else idle_timeout_s,
        is_conservative=options.get("upscalingMode") == CONSERVATIVE,
        skipped=frozenset(reading.skipped),
        suspended=frozenset(reading.suspended),
        desired_hosts=reading.desired_hosts,
    )


def asked_resources(state: GcsState) -> frozenset[str]:
    """Every resource named by a task demand, gang bundle or resource constraint; an amount of 0 names nothing."""
    return frozenset(name for request in _requests(state) for name, amount in request.amounts if amount)


def _requests(state: GcsState) -> Iterator[Request]:
    for demand in (*state.tasks, *(state.constraint or ())):
        yield demand.request
    for gang in state.gangs:
        yield from gang.bundles


def _by_type(live: Sequence[RayNode]) -> dict[str, list[RayNode]]:
    found: dict[str, list[RayNode]] = {}
    for node in live:
        if node.is_alive and node.node_type:
            found.setdefault(node.node_type, []).append(node)
    return found


class _Reading:
    """One pass over a spec that collects its problems."""

    def __init__(
        self, live: Mapping[str, Sequence[RayNode]], asked: frozenset[str], own_labels: frozenset[str]
    ) -> None:
        self._live = live
        self._asked = asked
        self._own_labels = own_labels
        self.problems: list[Problem] = []
        self.skipped: set[str] = set()
        self.suspended: set[str] = set()
        self.desired_hosts: dict[str, int] = {}

    def add_problem(self, group: str, message: str) -> None:
        """Record a problem that does not prevent reading the group."""
        self.problems.append(Problem(group, message))

    def entries(self, spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The groups with a unique name; there may be none (B-10)."""
        given = spec.get("workerGroupSpecs")
        if given is not None and not isinstance(given, list):
            self.add_problem("", "spec.workerGroupSpecs is not a list: write one entry per worker group")
        names: set[str] = {HEAD_TYPE}
        for index, entry in enumerate(given if isinstance(given, list) else ()):
            name = mapping(entry).get("groupName")
            path = f"spec.workerGroupSpecs[{index}]"
            if not isinstance(name, str) or not name:
                self.add_problem("", f"{path}.groupName is missing: set it; until then the group is skipped")
            elif name in names:
                self.add_problem(
                    name, f"{path}.groupName {name!r} is already used: set another; until then the entry is skipped"
                )
            else:
                names.add(name)
                yield name, entry

    def head(self, group: Mapping[str, Any]) -> NodeType:
        """The head's node type, at most one node (AS:C-2); an unreadable field is only reported."""
        try:
            found = node_resources(group)
        except FieldError as error:
            self.add_problem(HEAD_TYPE, str(error))
            found = NodeResources({})
        return NodeType(
            HEAD_TYPE,
            max_nodes=1,
            resources=_amounts({**found.amounts, **found.first}),
            labels=self._labels(HEAD_TYPE, group, 0, found, found.amounts),
        )

    def group(self, name: str, group: Mapping[str, Any]) -> NodeType | None:
        """The node type of one worker group; None if it cannot be read."""
        try:
            return self._group(name, group)
        except FieldError as error:
            self.skipped.add(name)
            self.add_problem(name, f"{error}; until then the autoscaler does not scale the group")
            return None

    def _group(self, name: str, group: Mapping[str, Any]) -> NodeType:
        hosts = self._hosts(group)
        minimum, maximum = self._bounds(name, group)
        if group.get("suspend") is True:
            self.suspended.add(name)
            minimum = maximum = 0
        replicas = self._count(group, "replicas", minimum)
        found = node_resources(group)
        resources = self._resources(name, group, found)
        labels = self._labels(name, group, hosts, found, dict(resources))
        first_resources, first_labels = self._of_first(name, found, resources, labels)
        if hosts == 1 and first_resources:
            resources, labels, first_resources, first_labels = first_resources, first_labels, (), ()
        self.desired_hosts[name] = clamp_between(replicas, minimum, maximum) * hosts
        return NodeType(
            name=name,
            min_nodes=minimum * hosts,
            max_nodes=maximum * hosts,
            resources=resources,
            labels=labels,
            idle_timeout_s=self.seconds(group.get("idleTimeoutSeconds"), name, "idleTimeoutSeconds"),
            priority=self._priority(name, group.get("priority")),
            num_of_hosts=hosts,
            first_resources=first_resources,
            first_labels=first_labels,
        )

    # --- counts --------------------------------------------------------------------------------------------------

    def _hosts(self, group: Mapping[str, Any]) -> int:
        hosts = _parse_integer(group.get("numOfHosts"), "numOfHosts", 1)
        if hosts < 1:
            raise FieldError(f"numOfHosts is {hosts}: set it to at least 1")
        return hosts

    def _bounds(self, name: str, group: Mapping[str, Any]) -> tuple[int, int]:
        """Minimum and maximum in replicas; a maximum below the minimum is raised to it, as in the operator."""
        minimum, maximum = self._count(group, "minReplicas", 0), self._count(group, "maxReplicas", MAX_INT32)
        if maximum < minimum:
            self.add_problem(
                name,
                f"maxReplicas {maximum} is below minReplicas {minimum}: raise it; until then the maximum is {minimum}",
            )
        return minimum, max(minimum, maximum)

    @staticmethod
    def _count(group: Mapping[str, Any], key: str, default: int) -> int:
        return min(max(0, _parse_integer(group.get(key), key, default)), MAX_INT32)

    def _priority(self, name: str, given: Any) -> int:
        try:
            return _parse_integer(given, "priority", 0)
        except FieldError as error:
            self.add_problem(name, f"{error}; until then the priority is 0")
            return 0

    def seconds(self, given: Any, group: str, key: str) -> float | None:
        """A timeout; None if it is absent or invalid."""
        if given is None:
            return None
        try:
            found = math.nan if isinstance(given, bool) else float(given)
        except (TypeError, ValueError, OverflowError):
            found = math.nan
        if math.isfinite(found) and found >= 0:
            return found
        self.add_problem(group, f"{key} is {_shown(given)}, which is not a duration: set seconds, such as 60")
        return None

    # --- resources and labels ------------------------------------------------------------------------------------

    def _resources(self, name: str, group: Mapping[str, Any], found: NodeResources) -> Amounts:
        for warning in found.warnings:
            self.add_problem(name, warning)
        live = self._live.get(name, ())
        observed = _observed_resources(found, live, self._asked)
        if CPU not in found.amounts and CPU not in observed:
            raise FieldError(
                "the number of CPUs per node is unknown: set limits.cpu of the first container, or rayStartParams[num-cpus]"
            )
        kind = RESOURCE + accelerator_of(group, found.amounts)
        known = {kind: RESOURCE_UNIT_SCALING} if kind in self._asked and not live else {}
        return tuple(sorted({**known, **dict(_amounts(found.amounts)), **observed}.items()))

    def _of_first(self, name: str, found: NodeResources, resources: Amounts, labels: Labels) -> tuple[Amounts, Labels]:
        """All resources and labels of worker 0 of a slice; empty if it has no more than the others."""
        if not found.first:
            return (), ()
        live = self._live.get(name, ())
        is_labelled = not live or any(key == TPU_WORKER_ID for node in live for key, _ in node.labels)
        worker = {TPU_WORKER_ID: "0"} if is_labelled else {}
        first = {**dict(resources), **dict(_amounts(found.first))}
        return tuple(sorted(first.items())), labels_of({**dict(labels), **worker})

    def _labels(
        self, name: str, group: Mapping[str, Any], hosts: int, found: NodeResources, resources: Mapping[str, int]
    ) -> Labels:
        """Labels of every node of the group: derived, learnt from live nodes, and set by the user (AS:C-7, B-12)."""
        if "labels" in mapping(group.get("rayStartParams")):
            self.add_problem(name, "rayStartParams[labels] is ignored: set the field `labels` of the group instead")
        written: dict[str, str] = {}
        for key, value in mapping(group.get("labels")).items():
            if isinstance(value, str) and _LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value):
                written[key] = value
            else:
                self.add_problem(
                    name,
                    f"labels[{key}] {_shown(value)} is not a Kubernetes label: correct it; until then it is ignored",
                )
        kind = accelerator_of(group, resources)
        known = {} if name in self._live else {**found.slice_labels, **({ACCELERATOR_LABEL: kind} if kind else {})}
        return labels_of(
            {
                **known,
                **_observed_labels(self._live.get(name, ()), hosts, self._own_labels),
                NODE_GROUP_LABEL: name,
                **written,
            }
        )


def _parse_integer(given: Any, key: str, default: int) -> int:
    """A whole number from a number or text, fractions truncated; raises `FieldError`."""
    if given is None:
        return default
    try:
        nanos = Quantity.parse(given.strip() if isinstance(given, str) else given).nanos
    except QuantityError:
        raise FieldError(f"{key} is {_shown(given)}, which is not a number: set an integer") from None
    whole: int = abs(nanos) // 10**9
    return whole if nanos >= 0 else -whole


def _shown(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= 80 else text[:79] + "…"


def _amounts(whole: Mapping[str, int]) -> Amounts:
    return tuple(sorted((name, amount * RESOURCE_UNIT_SCALING) for name, amount in whole.items()))


# --- learnt from live nodes ------------------------------------------------------------------------------------------


def _observed_resources(spec: NodeResources, live: Sequence[RayNode], asked: frozenset[str]) -> dict[str, int]:
    """Resources all live nodes of the group have, at their minimum; amounts the spec passes to Ray take precedence."""
    candidates = [
        name
        for name, _ in (live[0].total if live else ())
        if not OWN_RESOURCES.fullmatch(name)
        and (name in spec.guessed or (name not in spec.amounts and (name in asked or name == CPU)))
    ]
    if not candidates:
        return {}
    totals = [dict(node.total) for node in live]
    # Ray gives the hosts of a TPU slice a resource named after their slice; no other slice will have it.
    own = {value for node in live for key, value in node.labels if key == TPU_SLICE_NAME} | spec.first.keys()
    return {
        name: min(total[name] for total in totals)
        for name in candidates
        if name not in own and all(name in total for total in totals)
    }


def _observed_labels(live: Sequence[RayNode], hosts: int, own_labels: Collection[str]) -> dict[str, str]:
    """Labels all live nodes of the group agree on, if there are more of them than one replica's hosts.

    What the hosts of a single replica share, such as its name, need not be common to the group.
    """
    if not live:
        return {}
    shared = set(live[0].labels).intersection(*(node.labels for node in live[1:]))
    may_learn_all = len(live) > hosts
    return {key: value for key, value in shared if key in TYPES_LABELS or (may_learn_all and key not in own_labels)}
