"""Properties of every scheduling decision; Hypothesis searches for a counterexample."""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oracle.cases import Case
from raytide.autoscaler.feasibility import could_hold
from raytide.autoscaler.model import (
    COUNTABLE,
    Demand,
    Instance,
    LabelConstraint,
    Request,
    SchedulingReply,
    SchedulingRequest,
    Status,
    TerminationCause,
    Topology,
    amounts_of,
)
from raytide.autoscaler.request_text import shape_of
from raytide.autoscaler.scaling.limit_reasons import LimitInputs, reasons
from raytide.autoscaler.scheduling.node_classes import NodeClasses
from raytide.autoscaler.scheduling.node_factory import NodeFactory
from raytide.autoscaler.scheduling.resource_shapes import ACCELERATORS, RequestedNames, merged_by_affinity
from raytide.autoscaler.scheduling.schedule import schedule
from raytide.diagnosis.model import Diagnosis
from raytide.diagnosis.render import text_of
from support.explored import EXAMPLES, explored
from unit.autoscaler.scheduling.questions import ask, group, pending, tasks

thorough = explored(2 * EXAMPLES)


def in_replicas(question: SchedulingRequest, rng: random.Random) -> SchedulingRequest:
    """Some groups with several hosts per replica, and some unmanaged nodes."""
    types = [
        one if one.is_head or rng.random() < 0.7 else replace(one, num_of_hosts=rng.choice((2, 4)))
        for one in question.types
    ]
    hosts = {one.name: one.num_of_hosts for one in types}
    seen: Counter[str] = Counter()
    instances = []
    for instance in question.instances:
        per_replica = hosts.get(instance.node_type, 1)
        changed = instance
        if per_replica > 1:
            changed = replace(instance, replica=f"r{seen[instance.node_type] // per_replica}")
            seen[instance.node_type] += 1
        elif instance.status is Status.RAY_RUNNING and not instance.is_head and rng.random() < 0.1:
            changed = replace(instance, node_type="")
        instances.append(changed)
    return replace(question, types=tuple(types), instances=tuple(instances))


def with_topologies(question: SchedulingRequest, rng: random.Random) -> SchedulingRequest:
    """Some gangs have to share a value of a label that some, all or none of the groups have."""
    gangs = (
        replace(
            gang,
            topology=rng.choice(
                (
                    None,
                    Topology(rng.choice(("zone", "tier", "ray.io/node-group", "rack"))),
                    Topology("zone", (LabelConstraint("zone", ("b",)),)),
                    Topology("zone", is_known=rng.random() < 0.9),
                )
            ),
        )
        for gang in question.gangs
    )
    return replace(question, gangs=tuple(gangs))


@st.composite
def questions(draw: st.DrawFn) -> SchedulingRequest:
    """Requests of the oracle, multi-host replicas and topology strategies."""
    rng = random.Random(draw(st.integers(0, 2**48)))
    question = Case(rng, draw(st.sampled_from((0.3, 1.0)))).question()
    question = in_replicas(question, rng) if rng.random() < 0.5 else question
    return with_topologies(question, rng) if rng.random() < 0.5 else question


def staying(question: SchedulingRequest) -> tuple[Counter[str], Counter[str], dict[str, Counter[TerminationCause]]]:
    """Nodes by type that stay, that come, and that end by cause."""
    decision = schedule(question)
    cause = {one.instance_id: one.cause for one in decision.terminations}
    stays: Counter[str] = Counter()
    ends: dict[str, Counter[TerminationCause]] = {}
    for one in question.instances:
        if one.instance_id in cause:
            ends.setdefault(one.node_type, Counter())[cause[one.instance_id]] += 1
        elif one.status in COUNTABLE and one.status is not Status.RAY_STOP_REQUESTED:
            stays[one.node_type] += 1
    return stays, Counter(decision.launches), ends


@thorough
@given(questions())
def test_never_above_the_maximum_of_a_type_or_of_the_cluster(question):
    stays, comes, _ = staying(question)
    for one in question.types:
        if comes[one.name] or one.num_of_hosts == 1:
            assert stays[one.name] + comes[one.name] <= one.max_nodes
        assert comes[one.name] % one.num_of_hosts == 0
    if question.max_nodes and comes:
        assert sum(n for name, n in (stays + comes).items() if name) <= question.max_nodes


@thorough
@given(questions())
def test_no_node_of_a_minimum_is_terminated(question):
    stays, _, ends = staying(question)
    for one in question.types:
        if ends.get(one.name):
            hosts = one.num_of_hosts
            least = min(-(-one.min_nodes // hosts), one.max_nodes // hosts)
            assert stays[one.name] >= least, "a replica has at least one host"
            if hosts == 1:
                assert stays[one.name] >= min(one.min_nodes, one.max_nodes)


@thorough
@given(questions())
def test_neither_the_head_nor_an_unmanaged_node_is_terminated(question):
    untouchable = {one.instance_id for one in question.instances if one.is_head or one.is_unmanaged}
    decision = schedule(question)
    assert not untouchable & {one.instance_id for one in decision.terminations}
    assert "headgroup" not in decision.launches


@thorough
@given(questions(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_decides_nothing(question, rng):
    def shuffled(things):
        return tuple(rng.sample(things, len(things)))

    other = replace(
        question,
        instances=shuffled(question.instances),
        tasks=shuffled(question.tasks),
        gangs=shuffled(question.gangs),
        constraint=None if question.constraint is None else shuffled(question.constraint),
    )
    assert schedule(question) == schedule(question)
    first, second = schedule(question), schedule(other)
    assert first.launches == second.launches
    assert set(first.terminations) == set(second.terminations)
    assert set(first.unplaced) == set(second.unplaced)
    assert first.needed == second.needed
    assert {gang.details for gang in first.unplaced_gangs} == {gang.details for gang in second.unplaced_gangs}


def launched(question: SchedulingRequest, launches: dict[str, int]) -> SchedulingRequest:
    """The same question once the launches are on their way."""
    hosts = {one.name: one.num_of_hosts for one in question.types}
    coming = [
        Instance(
            f"new-{name}-{n}", name, Status.ALLOCATED, replica=f"new-{n // hosts[name]}" if hosts[name] > 1 else ""
        )
        for name, count in launches.items()
        for n in range(count)
    ]
    return replace(question, instances=(*question.instances, *coming))


@thorough
@given(questions())
def test_scheduling_again_launches_nothing_more(question):
    decision = schedule(question)
    again = schedule(launched(question, decision.launches))
    assert again.launches == {}


@explored()
@given(
    least=st.integers(0, 3),
    most=st.integers(0, 30),
    cpus=st.integers(1, 8),
    need=st.integers(1, 9),
    there=st.integers(0, 5),
    fewer=st.integers(0, 100),
    more=st.integers(0, 100),
)
@example(least=0, most=30, cpus=4, need=1, there=0, fewer=4, more=1)
def test_more_demand_of_one_shape_on_one_type_never_launches_less(*, least, most, cpus, need, there, fewer, more):
    groups = [group("g", most=most, least=least, CPU=cpus)]
    nodes = [pending(f"n{i}", "g") for i in range(there)]
    small = ask(groups, nodes, [tasks(fewer, CPU=need)])
    large = ask(groups, nodes, [tasks(fewer + more, CPU=need)])
    assert large.launches.get("g", 0) >= small.launches.get("g", 0)


@pytest.fixture(name="_is_checked")
def check_every_plan(monkeypatch):
    """Check each plan before it is accepted: what is placed fits, is allowed there, and was requested."""
    accept = NodeClasses.accept

    def checking(self, plan):
        moved: Counter[object] = Counter()
        for move in (*plan.moves, *plan.launches):
            for node in move.nodes:
                home = node.node_class
                moved[node] += 1
                needed = Counter()
                groups: Counter[object] = Counter()
                for run, count in move.fill.takes:
                    shape = plan.shapes[run]
                    assert count > 0
                    assert shape.has_match(home.label_map)
                    for resource, amount in shape.needs:
                        needed[resource] += amount * count
                    if shape.request.anti_affinity:
                        groups[shape.request.anti_affinity] += count
                        assert shape.request.anti_affinity not in home.labels
                assert set(groups.values()) <= {1}
                names = self.requested
                left = [home.free[plan.book][resource] - needed[resource] for resource in range(len(names.resources))]
                assert left == list(move.fill.left[: len(left)])
                assert min(move.fill.left, default=0) >= 0
                for resource, place in names.devices.items():
                    assert sum(move.fill.left[place]) <= left[resource]
                assert node.cause is None
        assert set(moved.values()) <= {1}
        accept(self, plan)

    monkeypatch.setattr(NodeClasses, "accept", checking)


@pytest.mark.usefixtures("_is_checked")
@thorough
@given(questions())
def test_whatever_is_placed_fits_and_is_allowed_there(question):
    schedule(question)


@thorough
@given(questions())
def test_a_gang_without_a_place_launches_nothing(question):
    types = tuple(replace(one, min_nodes=0) for one in question.types)
    for gang in question.gangs:
        decision = schedule(replace(question, types=types, tasks=(), constraint=None, gangs=(gang,)))
        assert not (decision.unplaced_gangs and decision.launches)


@thorough
@given(questions())
def test_of_each_demand_what_is_not_placed_is_reported_and_no_more(question):
    decision = schedule(question)
    asked = Counter()
    for demand in question.tasks:
        asked[demand.request] += demand.count
    assert all(0 < one.count <= asked[one.request] for one in decision.unplaced)
    assert len({one.request for one in decision.unplaced}) == len(decision.unplaced)
    assert set(decision.impossible) <= set(decision.unplaced)
    assert set(decision.impossible_gangs) <= set(decision.unplaced_gangs)


# --- what no request asks for ------------------------------------------------------------------------------------------


def beside(question: SchedulingRequest, rng: random.Random, *, is_in_use: bool) -> SchedulingRequest:
    """Every running node has an object store and placement groups of others, in use by a share of its own or not.

    Each is idle for a time of its own, because which of equally idle nodes ends is a matter of their use.
    """
    instances = []
    for number, instance in enumerate(question.instances):
        changed = replace(instance, idle_ms=1 + number * 997 % 400_000)
        if instance.status is Status.RAY_RUNNING:
            own = {"object_store_memory": 4 << 30}
            own |= {f"CPU_group_{rng.randrange(4)}_{rng.randrange(9):032x}": 2 for _ in range(rng.randrange(3))}
            used = {name: rng.randrange(amount + 1) for name, amount in own.items()}
            left = {name: amount - used[name] * is_in_use for name, amount in own.items()}
            changed = replace(
                changed,
                total=tuple(sorted((dict(instance.total) | dict(amounts_of(own))).items())),
                available=tuple(
                    sorted((dict(instance.available) | dict(amounts_of({n: a for n, a in left.items() if a}))).items())
                ),
            )
        instances.append(changed)
    return replace(question, instances=tuple(instances))


def classes(question: SchedulingRequest) -> int:
    """The number of node classes at the start of a decision."""
    reader = NodeFactory(RequestedNames(question), question.types)
    return len({node.node_class for node in reader.nodes(question.instances)})


@pytest.mark.rule("FD:AS-A4")
@thorough
@given(questions(), st.integers(0, 2**48))
def test_resources_that_no_request_names_change_no_decision_and_add_no_node_class(question, seed):
    unused = beside(question, random.Random(seed), is_in_use=False)
    in_use = beside(question, random.Random(seed), is_in_use=True)
    assert schedule(in_use) == schedule(unused)
    asked = frozenset(RequestedNames(question).resources)
    kinds = {
        (
            *(i.node_type, i.is_head, i.status, i.labels, i.dynamic_labels),
            tuple(pair for pair in i.total if pair[0] in asked or pair[0] in ACCELERATORS),
            tuple(pair for pair in i.available if pair[0] in asked),
            sum(name not in asked for name, _ in i.total),
        )
        for i in question.instances
    }
    assert classes(in_use) == classes(unused) <= len(kinds)


@pytest.mark.rule("FD:AS3-6")
@thorough
@given(questions(), st.sets(st.sampled_from(("GPU", "TPU", "neuron_cores", "memory", "accelerator_type:T4", "nope"))))
def test_an_amount_of_zero_makes_no_difference(question, names):
    def padded(request):
        return replace(request, amounts=tuple(sorted({**dict.fromkeys(names, 0), **dict(request.amounts)}.items())))

    def all_padded(demands):
        return tuple(replace(demand, request=padded(demand.request)) for demand in demands)

    other = replace(
        question,
        tasks=all_padded(question.tasks),
        gangs=tuple(replace(gang, bundles=tuple(map(padded, gang.bundles))) for gang in question.gangs),
        constraint=None if question.constraint is None else all_padded(question.constraint),
    )
    first, second = schedule(question), schedule(other)
    assert (first.launches, first.needed) == (second.launches, second.needed)
    assert sorted(first.totals) == sorted(second.totals), "only their sum is read"
    assert set(first.terminations) == set(second.terminations)
    assert sum(demand.count for demand in first.unplaced) == sum(demand.count for demand in second.unplaced)


BLOCKED = ("QuotaExceeded", "ScaleGated")


def told(
    question: SchedulingRequest, blocked: dict[str, Diagnosis], reply: SchedulingReply
) -> list[tuple[str, Diagnosis]]:
    """All reasons by group; the groups have the nodes of the decision about the question."""
    stays, comes, _ = staying(question)
    found = reasons(LimitInputs(question.types, reply, stays + comes, limits=blocked))
    return [(group, why) for group, whys in found.items() for why in whys]


def is_told(requests: Iterable[Request], found: list[tuple[str, Diagnosis]], question: SchedulingRequest) -> bool:
    """Whether a reason names one of the requests, or belongs to a blocked group that could hold one."""
    types = {one.name: one for one in question.types}
    return any(
        shape_of(request) in text_of(why) or (why.reason in BLOCKED and could_hold(types[group], request))
        for request in requests
        for group, why in found
    )


@pytest.mark.rule("FD:AS3-7")
@thorough
@given(questions(), st.sampled_from(("zone", "tier", "rack")))
def test_nodes_launched_for_a_topology_strategy_share_a_value_of_its_label(question, label):
    question = replace(
        question, tasks=(), constraint=None, types=tuple(replace(one, min_nodes=0) for one in question.types)
    )
    for gang in question.gangs:
        reply = schedule(replace(question, gangs=(replace(gang, topology=Topology(label)),)))
        values = {dict(one.labels).get(label) for one in question.types if one.name in reply.launches}
        assert len(values - {None}) == len(values) <= 1


@pytest.mark.rule("FD:AS3-5", "FD:AS3-7", "FD:AS3-8")
@thorough
@given(questions(), st.randoms(use_true_random=False))
def test_all_demand_is_placed_or_launched_for_or_named_in_a_reason(question, rng):
    blocked = {
        one.name: Diagnosis(rng.choice(BLOCKED)) for one in question.types if not one.is_head and rng.random() < 0.2
    }
    types = tuple(replace(one, available=0) if one.name in blocked else one for one in question.types)
    question = replace(question, types=types)
    reply = schedule(question)
    for demand in reply.unplaced:
        alone = SchedulingReply(unplaced=(demand,), impossible=tuple({demand} & set(reply.impossible)))
        assert is_told([demand.request], told(question, blocked, alone), question)
    for gang in reply.unplaced_gangs:
        alone = SchedulingReply(unplaced_gangs=(gang,), impossible_gangs=tuple({gang} & set(reply.impossible_gangs)))
        assert is_told(merged_by_affinity(gang.bundles), told(question, blocked, alone), question)
    for demand in reply.unmet:
        alone = SchedulingReply(
            unmet=(demand,), impossible_constraint=tuple({demand} & set(reply.impossible_constraint))
        )
        assert is_told([demand.request], told(question, blocked, alone), question)


@pytest.mark.rule("FD:AS3-2")
@thorough
@given(st.integers(1, 8), st.integers(1, 9_999), st.integers(1, 60))
def test_a_device_holds_as_many_equal_fractions_as_fit_into_one(devices, amount, count):
    demand = Demand(Request((("GPU", amount),), ((),)), count)
    per_node = devices * (10_000 // amount)
    assert ask([group("g", most=100, GPU=devices)], demand=[demand]).launches == {"g": -(-count // per_node)}
