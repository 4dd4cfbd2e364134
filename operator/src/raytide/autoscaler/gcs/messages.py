"""GCS messages: decoding of the cluster resource state and encoding of the autoscaling state.

`decode_state` turns the GCS's reply into a `GcsState`, `encode_report` a `Report` into the message behind `ray status`.
Invalid entries never fail the whole reply: they are left out, and `GcsState.problems` counts them by kind. Pure, and
fast enough for thousands of nodes and demands in every tick. Called by client.py; rules AS:G-1 to AS:G-11 and AS §5.3.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from raytide.autoscaler.gcs import gcs_pb2 as pb
from raytide.autoscaler.model import (
    PLACEMENT_GROUP_RESOURCE,
    RESOURCE_UNIT_SCALING,
    Amounts,
    Demand,
    Gang,
    GcsState,
    LabelConstraint,
    NodeStatus,
    PendingRequest,
    RayNode,
    Report,
    Request,
    Selector,
    Topology,
    labels_of,
)

STATUSES: Final[Mapping[int, NodeStatus]] = {number: NodeStatus(name) for name, number in pb.NodeState.Status.items()}
REPORTED_ONE_BY_ONE: Final = 10_000
"""Maximum of single entries for requested nodes, all types together; further ones share one entry per type."""
MAX_IN_A_COUNT: Final = 2**31 - 1


# --- decoding --------------------------------------------------------------------------------------------------------


NodeCache: TypeAlias = dict[bytes, RayNode]
"""The nodes of the last reply by their encoding: most nodes do not change between ticks."""


def decode_state(reply: pb.GetClusterResourceStateReply, cache: NodeCache | None = None) -> GcsState:
    """Decode the valid part of `reply`, which is modified; nodes unchanged since the last reply come from `cache`."""
    state = reply.cluster_resource_state
    reader = _Reader({} if cache is None else cache)
    return GcsState(
        nodes=reader.nodes(state.node_states),
        tasks=_outside_placement_groups(reader.demands(state.pending_resource_requests, "demand")),
        gangs=reader.gangs(state.pending_gang_resource_requests),
        constraint=reader.constraint(state.cluster_resource_constraints),
        version=state.cluster_resource_state_version,
        session=state.cluster_session_name,
        problems=reader.problems.sentences(),
    )


@dataclass(slots=True)
class _Problems:
    """Invalid entries counted by kind, each kind with its first example."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, example: str) -> None:
        self.counts[kind] += 1
        self.examples.setdefault(kind, example[:200])

    def sentences(self) -> tuple[str, ...]:
        return tuple(f"{kind}: {count}, the first is {self.examples[kind]}" for kind, count in self.counts.items())


@dataclass(slots=True)
class _Reader:
    """Decodes one reply and collects its problems."""

    cache: NodeCache
    problems: _Problems = field(default_factory=_Problems)
    known: dict[bytes, Request] = field(default_factory=dict)
    """By encoding: the bundles of a gang, and many demands, are alike."""

    def nodes(self, found: Iterable[pb.NodeState]) -> tuple[RayNode, ...]:
        nodes: dict[str, RayNode] = {}
        next_cache: NodeCache = {}
        for entry in found:
            node = self.decode_cached(entry, next_cache)
            if not node.node_id:
                self.problems.add("nodes without an ID skipped", repr(node.instance_id))
            elif node.node_id in nodes:
                self.problems.add("duplicate nodes skipped", node.node_id)
            else:
                nodes[node.node_id] = node
        self.cache.clear()
        self.cache.update(next_cache)
        return tuple(nodes.values())

    def decode_cached(self, entry: pb.NodeState, next_cache: NodeCache) -> RayNode:
        """Decode a node; returns the object of the last reply if nothing but the idle time differs.

        Clears the idle time of `entry`. A node with problems is not cached, so that each reply reports them.
        """
        idle_ms = max(entry.idle_duration_ms, 0)
        entry.ClearField("idle_duration_ms")
        encoded = entry.SerializeToString()
        before = self.problems.counts.total()
        node = self.cache.get(encoded) or self.node(entry)
        if self.problems.counts.total() == before:
            next_cache[encoded] = node
        return replace(node, idle_ms=idle_ms) if idle_ms else node

    def node(self, entry: pb.NodeState) -> RayNode:
        return RayNode(
            node_id=entry.node_id.hex(),
            status=STATUSES.get(entry.status, NodeStatus.UNSPECIFIED),
            instance_id=entry.instance_id,
            node_type=entry.ray_node_type_name,
            total=self.valid_amounts(entry.total_resources),
            available=self.valid_amounts(entry.available_resources),
            labels=labels_of(entry.labels),
            dynamic_labels=labels_of(entry.dynamic_labels),
            address=entry.node_ip_address,
        )

    def valid_amounts(self, resources: Mapping[str, float]) -> Amounts:
        """The resources of a node, with invalid amounts left out and noted as a problem."""
        if (amounts := _amounts(resources)) is not None:
            return amounts
        valid = {}
        for name, amount in resources.items():
            if _amounts({name: amount}) is None:
                self.problems.add("invalid resource amounts of nodes skipped", f"{name} = {amount}")
            else:
                valid[name] = amount
        return _amounts(valid) or ()

    def demands(self, found: Iterable[pb.ResourceRequestByCount], what: str) -> tuple[Demand, ...]:
        demands = []
        for entry in found:
            if entry.count <= 0:
                self.problems.add(f"{what}s with a count below 1 skipped", f"{entry.count} of {_shape(entry.request)}")
            elif (request := self.request(entry.request, what)) is not None:
                demands.append(Demand(request, entry.count))
        return tuple(demands)

    def request(self, entry: pb.ResourceRequest, what: str) -> Request | None:
        encoded = entry.SerializeToString()
        if (request := self.known.get(encoded)) is None and (request := self._new_request(entry, what)) is not None:
            self.known[encoded] = request
        return request

    def _new_request(self, entry: pb.ResourceRequest, what: str) -> Request | None:
        amounts = _amounts(entry.resources_bundle)
        if amounts is None:
            self.problems.add(f"{what}s with invalid resource amounts skipped", _shape(entry))
            return None
        if not entry.placement_constraints:
            return Request(amounts, _selectors(entry))
        pairs = [(p.affinity, p.HasField("affinity")) for p in entry.placement_constraints]
        anti_pairs = [(p.anti_affinity, p.HasField("anti_affinity")) for p in entry.placement_constraints]
        affinities = [(pair.label_name, pair.label_value) for pair, is_set in pairs if is_set]
        anti_affinities = [(pair.label_name, pair.label_value) for pair, is_set in anti_pairs if is_set]
        if len(affinities) > 1 or len(anti_affinities) > 1:
            self.problems.add(f"{what}s with several constraints of a kind, only the first is used", _shape(entry))
        return Request(
            amounts,
            _selectors(entry),
            affinity=affinities[0] if affinities else None,
            anti_affinity=anti_affinities[0] if anti_affinities else None,
        )

    def gangs(self, found: Iterable[pb.GangResourceRequest]) -> tuple[Gang, ...]:
        gangs = (self.gang(entry) for entry in found)
        return tuple(gang for gang in gangs if gang is not None)

    def gang(self, entry: pb.GangResourceRequest) -> Gang | None:
        """None without bundles: Ray does report groups that have nothing to place (AS:G-8)."""
        alternatives = entry.bundle_selectors
        bundles = (alternatives and alternatives[0].resource_requests) or entry.requests
        requests: list[Request] = []
        for bundle in bundles:
            request = self.request(bundle, "gang")
            if request is None:
                return None
            requests.append(request)
        return Gang(entry.details, tuple(requests), _topology(alternatives)) if requests else None

    def constraint(self, found: Iterable[pb.ClusterResourceConstraint]) -> tuple[Demand, ...] | None:
        constraints = list(found)
        if len(constraints) > 1:
            self.problems.add("several cluster constraints, only the first is used", f"one of {len(constraints)}")
        return self.demands(constraints[0].resource_requests, "constraint") if constraints else None


def _outside_placement_groups(demands: Iterable[Demand]) -> tuple[Demand, ...]:
    """Demand for nodes; that of work in a placement group is left out, because the gang stands for it (AS:G-6)."""
    return tuple(
        demand
        for demand in demands
        if not any(PLACEMENT_GROUP_RESOURCE.fullmatch(name) for name, _ in demand.request.amounts)
    )


def _amounts(resources: Mapping[str, float]) -> Amounts | None:
    """In units of 1/10000; None if one of them is negative, infinite or not a number."""
    try:
        amounts = tuple(sorted([(name, round(amount * RESOURCE_UNIT_SCALING)) for name, amount in resources.items()]))
    except (ValueError, OverflowError):  # raised by round() for NaN and infinity
        return None
    return None if any(amount < 0 for _, amount in amounts) else amounts


def _topology(alternatives: Sequence[pb.BundleSelector]) -> Topology | None:
    """None also for PACK and SPREAD, which Ray places as well as it can."""
    found = alternatives[0].locality_requirement if alternatives else pb.LocalityRequirement()
    name, strategy = found.locality_constraint.label_name, found.locality_constraint.placement_strategy
    if not name or strategy in (pb.LocalityConstraint.PACK, pb.LocalityConstraint.SPREAD):
        return None
    return Topology(name, _selector(found.label_selector), is_known=strategy == pb.LocalityConstraint.STRICT_PACK)


def _selectors(entry: pb.ResourceRequest) -> tuple[Selector, ...]:
    return tuple(map(_selector, entry.label_selectors))


def _selector(entry: pb.LabelSelector) -> Selector:
    return tuple(map(_label_constraint, entry.label_constraints))


def _label_constraint(entry: pb.LabelConstraint) -> LabelConstraint:
    """The values are sorted, since Ray lists the same ones in varying order (AS:G-7)."""
    return LabelConstraint(
        entry.label_key,
        tuple(sorted(entry.label_values)),
        is_in=entry.operator != pb.LabelConstraint.NOT_IN,
        is_known=entry.operator in (pb.LabelConstraint.IN, pb.LabelConstraint.NOT_IN),
    )


def _shape(entry: pb.ResourceRequest) -> str:
    return str(dict(sorted(entry.resources_bundle.items())))


# --- encoding --------------------------------------------------------------------------------------------------------


def encode_report(report: Report) -> pb.ReportAutoscalingStateRequest:
    """The message of a report; one entry per requested node, because `ray status` counts entries (AS §5.5)."""
    constraint = report.infeasible_constraint
    state = pb.AutoscalingState(
        last_seen_cluster_resource_state_version=report.gcs_version,
        autoscaler_state_version=report.version,
        pending_instance_requests=_one_by_one(report.pending_requests),
        infeasible_resource_requests=[_encode_request(demand.request) for demand in report.infeasible],
        infeasible_gang_resource_requests=[encode_gang(gang) for gang in report.infeasible_gangs],
        infeasible_cluster_resource_constraints=[] if constraint is None else [_encode_constraint(constraint)],
        pending_instances=[
            pb.PendingInstance(
                ray_node_type_name=instance.node_type,
                instance_id=instance.instance_id,
                ip_address=instance.address,
                details=instance.details,
            )
            for instance in report.pending_instances
        ],
        failed_instance_requests=[
            pb.FailedInstanceRequest(
                ray_node_type_name=failed.node_type,
                count=min(failed.count, MAX_IN_A_COUNT),
                reason=failed.reason,
                start_ts=failed.started_at_s,
                failed_ts=failed.failed_at_s,
            )
            for failed in report.failed_requests
        ],
    )
    return pb.ReportAutoscalingStateRequest(autoscaling_state=state)


def _one_by_one(pending: Iterable[PendingRequest]) -> list[pb.PendingInstanceRequest]:
    entries: list[pb.PendingInstanceRequest] = []
    for request in pending:
        single = min(request.count, max(REPORTED_ONE_BY_ONE - len(entries), 0))
        entries += [_encode_pending(request, 1)] * single
        if request.count > single:
            entries.append(_encode_pending(request, min(request.count - single, MAX_IN_A_COUNT)))
    return entries


def _encode_pending(request: PendingRequest, count: int) -> pb.PendingInstanceRequest:
    return pb.PendingInstanceRequest(
        ray_node_type_name=request.node_type, count=count, request_ts=request.requested_at_s
    )


def encode_demand(demand: Demand) -> pb.ResourceRequestByCount:
    """A demand as Ray encodes it."""
    return pb.ResourceRequestByCount(request=_encode_request(demand.request), count=demand.count)


def _encode_constraint(demands: Iterable[Demand]) -> pb.ClusterResourceConstraint:
    return pb.ClusterResourceConstraint(resource_requests=map(encode_demand, demands))


def encode_gang(gang: Gang) -> pb.GangResourceRequest:
    """Both encodings of bundles Ray uses: the old one without selectors, the new one with them (AS:G-8)."""
    bundles = [_encode_request(bundle) for bundle in gang.bundles]
    plain = [_encode_request(bundle, is_labelled=False) for bundle in gang.bundles]
    alternatives = [pb.BundleSelector(resource_requests=bundles, locality_requirement=_encode_topology(gang.topology))]
    return pb.GangResourceRequest(requests=plain, details=gang.details, bundle_selectors=alternatives)


def _encode_topology(topology: Topology | None) -> pb.LocalityRequirement | None:
    if topology is None:
        return None
    kinds = pb.LocalityConstraint
    strategy = kinds.STRICT_PACK if topology.is_known else kinds.STRICT_SPREAD
    return pb.LocalityRequirement(
        locality_constraint=kinds(label_name=topology.label, placement_strategy=strategy),
        label_selector=_encode_selector(topology.selector) if topology.selector else None,
    )


def _encode_request(request: Request, *, is_labelled: bool = True) -> pb.ResourceRequest:
    placement = pb.PlacementConstraint(
        affinity=_encode_pair(request.affinity), anti_affinity=_encode_pair(request.anti_affinity)
    )
    return pb.ResourceRequest(
        resources_bundle={name: amount / RESOURCE_UNIT_SCALING for name, amount in request.amounts},
        placement_constraints=[placement] if request.affinity or request.anti_affinity else [],
        label_selectors=map(_encode_selector, request.selectors) if is_labelled else [],
    )


def _encode_pair(pair: tuple[str, str] | None) -> pb.LabelName | None:
    return pb.LabelName(label_name=pair[0], label_value=pair[1]) if pair else None


def _encode_selector(selector: Selector) -> pb.LabelSelector:
    return pb.LabelSelector(
        label_constraints=[
            pb.LabelConstraint(label_key=rule.key, operator=_operator(rule), label_values=rule.values)
            for rule in selector
        ]
    )


def _operator(rule: LabelConstraint) -> pb.LabelConstraint.Operator:
    if not rule.is_known:
        return pb.LabelConstraint.UNSPECIFIED
    return pb.LabelConstraint.IN if rule.is_in else pb.LabelConstraint.NOT_IN
