"""Where a pod may run: constraints as in kube-scheduler, free capacity per node, and which node is chosen."""

import pytest

from raytide.api.pod_requirements import CPU, PODS, NodeRequirement, PodConstraints, PodToleration
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.capacity_index import CapacityIndex, times_that_fit
from raytide.fairshare.algorithm.model import MEMORY, Node, Shape, Taint
from raytide.fairshare.algorithm.node_affinity import NodeKinds, admits
from raytide.fairshare.algorithm.placement import ClusterCapacity
from support.elastic_builders import GPU, World, amounts, external_pod, job, master, node, resizes_of, shape

pytestmark = pytest.mark.rule("TJ:7.3")

LABELLED = node("node-1", cpu=8, labels={"zone": "east", "generation": "7", "word": "seven"})


def wants(key: str, operator: str, *values: str, is_field: bool = False) -> NodeRequirement:
    return NodeRequirement(key, operator, frozenset(values), is_field)


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        pytest.param(wants("zone", "In", "west", "east"), True, id="In: one of the values"),
        pytest.param(wants("zone", "In", "west"), False, id="In: none of the values"),
        pytest.param(wants("rack", "In", "west"), False, id="In: a label that is not there is in nothing"),
        pytest.param(wants("zone", "NotIn", "east"), False, id="NotIn: one of the values"),
        pytest.param(wants("zone", "NotIn", "west"), True, id="NotIn: none of the values"),
        pytest.param(wants("rack", "NotIn", "west"), True, id="NotIn: a label that is not there is not in it"),
        pytest.param(wants("zone", "Exists"), True, id="Exists"),
        pytest.param(wants("rack", "Exists"), False, id="Exists not"),
        pytest.param(wants("rack", "DoesNotExist"), True, id="DoesNotExist"),
        pytest.param(wants("zone", "DoesNotExist"), False, id="DoesNotExist, but it does"),
        pytest.param(wants("generation", "Gt", "6"), True, id="Gt: more"),
        pytest.param(wants("generation", "Gt", "7"), False, id="Gt: as much is not more"),
        pytest.param(wants("generation", "Lt", "8"), True, id="Lt: less"),
        pytest.param(wants("generation", "Lt", "7"), False, id="Lt: as much is not less"),
        pytest.param(wants("word", "Gt", "6"), False, id="Gt: the label is not a number"),
        pytest.param(wants("generation", "Gt", "six"), False, id="Gt: the operand is not a number"),
        pytest.param(wants("rack", "Lt", "7"), False, id="Lt: a label that is not there is not less"),
        pytest.param(wants("generation", "Gt", "1", "2"), False, id="Gt: two bounds are none"),
        pytest.param(wants("zone", "Near", "east"), False, id="an unknown operator is not satisfied"),
        pytest.param(wants("metadata.name", "In", "node-1", is_field=True), True, id="a field: the name"),
        pytest.param(wants("metadata.name", "NotIn", "node-1", is_field=True), False, id="a field: any other name"),
        pytest.param(wants("metadata.uid", "In", "node-1", is_field=True), False, id="an unsupported field"),
    ],
)
def test_requirements(requirement, expected):
    assert admits(LABELLED, PodConstraints(terms=((requirement,),))) is expected


EAST, SEVEN, EIGHT = wants("zone", "In", "east"), wants("generation", "In", "7"), wants("generation", "In", "8")


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param((), True, id="no terms match every node"),
        pytest.param(((),), False, id="an empty term matches nothing"),
        pytest.param(((EAST, SEVEN),), True, id="all of one term"),
        pytest.param(((EAST, EIGHT),), False, id="half of one term is not enough"),
        pytest.param(((EIGHT,), (EAST,)), True, id="one of two terms is enough"),
    ],
)
def test_terms(terms, expected):
    assert admits(LABELLED, PodConstraints(terms=terms)) is expected


@pytest.mark.parametrize(
    ("taint", "toleration", "expected"),
    [
        pytest.param(Taint("gpu"), None, False, id="NoSchedule keeps away"),
        pytest.param(Taint("gpu", effect="NoExecute"), None, False, id="NoExecute keeps away"),
        pytest.param(Taint("gpu", effect="PreferNoSchedule"), None, True, id="PreferNoSchedule repels no pod"),
        pytest.param(Taint("gpu", "yes"), PodToleration("gpu", "Equal", "yes"), True, id="Equal: key and value"),
        pytest.param(Taint("gpu", "yes"), PodToleration("gpu", "", "yes"), True, id="no operator is Equal"),
        pytest.param(Taint("gpu", "yes"), PodToleration("gpu", "Equal", "no"), False, id="Equal: another value"),
        pytest.param(Taint("gpu", "yes"), PodToleration("gpu", "Exists"), True, id="Exists: any value"),
        pytest.param(Taint("gpu", "yes"), PodToleration("cpu", "Exists"), False, id="Exists: another key"),
        pytest.param(Taint("gpu", "yes"), PodToleration("", "Exists"), True, id="Exists without a key: everything"),
        pytest.param(Taint("gpu"), PodToleration("gpu", "Exists", "", "NoExecute"), False, id="another effect"),
        pytest.param(Taint("gpu"), PodToleration("gpu", "Exists", "", "NoSchedule"), True, id="the same effect"),
    ],
)
def test_taints(taint, toleration, expected):
    tolerations = (toleration,) if toleration else ()
    assert admits(node(taints=(taint,)), PodConstraints(tolerations=tolerations)) is expected


def test_node_selectors_are_met_in_full():
    assert admits(LABELLED, PodConstraints((("zone", "east"), ("generation", "7"))))
    assert not admits(LABELLED, PodConstraints((("zone", "east"), ("generation", "8"))))


def test_kinds_of_nodes_answer_as_each_node_does():
    nodes = [
        node(f"node-{n}", labels={"zone": "ew"[n % 2], "host": str(n)}, taints=(Taint("gpu"),) * (n % 3 == 0))
        for n in range(12)
    ]
    asked = [
        PodConstraints(),
        PodConstraints((("zone", "e"),)),
        PodConstraints((("zone", "w"),), tolerations=(PodToleration("gpu", "Exists"),)),
        PodConstraints(terms=((wants("host", "Gt", "7"),), (wants("metadata.name", "In", "node-1", is_field=True),))),
    ]
    kinds = NodeKinds(nodes)
    for constraints in asked:
        assert kinds.admitting(constraints) == [n for n, each in enumerate(nodes) if admits(each, constraints)]


# --- which jobs grow where -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param(node("new", cpu=3), 3, id="a node with capacity"),
        pytest.param(node("new", cpu=3, is_usable=False), 0, id="a node that is cordoned or not ready has no capacity"),
        pytest.param(node("new", cpu=3, taints=(Taint("gpu"),)), 0, id="a taint that is not tolerated"),
        pytest.param(node("new", cpu=3, pods=2), 2, id="the number of pods ends before the CPU"),
        pytest.param(Node("new", {CPU: 3000}), 3, id="a node that does not count pods takes any number"),
        pytest.param(node("new", cpu=3, used=amounts(cpu=1.5)), 1, id="what others use is not there"),
    ],
)
def test_growth_needs_a_node(there, expected):
    world = World([node("old", cpu=1), there], [job("a", 1, 9, 1, uses_limits=False)])
    if not there.is_usable:
        assert world.jobs[next(iter(world.jobs))].trainers == ["old"]
    assert resizes_of(allocate(world.pool())) == ({"a": expected} if expected else {})


def test_two_jobs_have_the_nodes_they_may_use():
    in_east = shape(1, node_selector=(("zone", "east"),))
    world = World(
        [node("e", cpu=4, labels={"zone": "east"}), node("w", cpu=4, labels={"zone": "west"})],
        [job("east", 1, 9, 1, shape=in_east), job("any", 1, 9, 1)],
    )
    after = world.carried_out(allocate(world.pool()))
    assert sum(after.sizes().values()) == 8
    assert after.sizes()["east"] == 3, "one of east's four is any's, from the beginning"


def test_a_gang_is_placed_with_all_that_comes_with_it():
    gang = job("gang", 2, 2, 0, is_gang=True, core=(master(2),))
    assert resizes_of(allocate(World([node(cpu=3)], [gang]).pool())) == {}
    assert resizes_of(allocate(World([node(cpu=4)], [gang]).pool())) == {"gang": 2}


@pytest.mark.rule("TJ:7.7")
def test_an_admission_says_where_the_master_is_planned():
    gang = job("gang", 2, 2, 0, cpu=2, is_gang=True, core=(master(0.5, count=2),))
    (resize,) = allocate(World([node("one", cpu=3), node("two", cpu=2)], [gang]).pool()).resizes
    assert (resize.nodes, resize.core_nodes) == ({"one": 1, "two": 1}, {"master": {"one": 2}})


def test_the_pods_of_a_gang_are_placed_on_single_nodes():
    gang = job("gang", 2, 2, 0, cpu=3, is_gang=True)
    halves = [node("one", cpu=5), node("two", cpu=2)]
    assert resizes_of(allocate(World(halves, [gang]).pool())) == {}, "seven CPUs, but no second place for three"
    assert resizes_of(allocate(World([*halves, node("three", cpu=3)], [gang]).pool())) == {"gang": 2}


def test_external_pods_that_fit_are_placed_first():
    world = World([node(cpu=5)], [job("a", 1, 9, 1)], external_pods=[external_pod(1, count=3)])
    assert resizes_of(allocate(world.pool())) == {"a": 1}


def test_cpu_pods_leave_the_nodes_with_gpus_free():
    world = World([node("a-gpu", cpu=4, gpu=4), node("b-cpu", cpu=4)], [job("cpu", 2, 2, 0, is_gang=True)])
    (only,) = allocate(world.pool()).resizes
    assert dict(only.nodes) == {"b-cpu": 2}


def test_gpu_pods_fill_a_node_before_they_begin_another():
    nodes = [node("a", cpu=8, gpu=4), node("b", cpu=8, gpu=4, used=amounts(gpu=2))]
    (only,) = allocate(World(nodes, [job("gpu", 2, 2, 0, gpu=1)]).pool()).resizes
    assert dict(only.nodes) == {"b": 2}


# --- free capacity -----------------------------------------------------------------------------------------------------------


def capacity_of(*nodes: Node, shapes: tuple[Shape, ...]) -> ClusterCapacity:
    return ClusterCapacity(nodes, shapes, frozenset({GPU}))


def test_equal_shapes_are_one():
    room = capacity_of(node(cpu=4), shapes=(shape(1), shape(1), shape(2)))
    assert room.pod(shape(1)) is room.pod(shape(1))
    assert room.pod(shape(1)) is not room.pod(shape(2))


def test_what_is_free_now_comes_before_what_is_free_soon():
    leaving = node("a", cpu=2, used=amounts(cpu=2), terminating=amounts(cpu=2))
    room = capacity_of(leaving, node("b", cpu=1), shapes=(shape(1),))
    pod = room.pod(shape(1))
    found = []
    while (place := room.find(pod)) is not None:
        room.put(pod, place[0])
        found.append((place[0].name, place[1]))
    assert found == [("b", True), ("a", False), ("a", False)]


def test_capacity_that_was_released_is_found_again():
    room = capacity_of(node("a", cpu=1), node("b", cpu=1), shapes=(shape(1),))
    pod = room.pod(shape(1))
    places = []
    for _ in range(2):
        places.append(room.find(pod)[0])
        room.put(pod, places[-1])
    assert room.find(pod) is None
    room.unplace(pod, places[0])
    assert room.find(pod) == (places[0], True)
    room.put(pod, places[0])
    room.release(pod, places[1])
    assert room.find(pod) == (places[1], False), "released room is not free yet"
    room.keep(pod, places[1])
    assert room.find(pod) is None


def test_many_shapes_find_what_one_by_one_they_would():
    """An index answers for them all; what is released later is found nevertheless."""
    shapes = tuple(shape(cpu / 10) for cpu in range(1, 41))
    room = capacity_of(node("a", cpu=2), node("b", cpu=1), shapes=shapes)
    pods = [room.pod(each) for each in shapes]
    assert [room.find(pod) is not None for pod in pods] == [cpu <= 20 for cpu in range(1, 41)]
    room.release(pods[19], room.by_name["a"])
    assert [room.find(pod) is not None for pod in pods] == [True] * 40


@pytest.mark.parametrize(
    ("vectors", "expected"),
    [
        pytest.param([[4, 1], [1, 4]], (1, 2, 1), id="each is somewhere, but not together: the nearest lacks one"),
        pytest.param([[1, 9], [1, 8]], (0, 2, 1), id="no node has the first"),
        pytest.param([[2, 2]], None, id="nothing is lacking"),
    ],
)
def test_what_comes_nearest(vectors, expected):
    index = CapacityIndex(vectors)
    assert index.lacking(((0, 2), (1, 2))) == expected
    assert index.holds(((0, 2), (1, 2))) is (expected is None)


def test_how_many_fit():
    assert times_that_fit(((0, 2), (1, 1)), [7, 2]) == 2
    assert times_that_fit(((0, 2),), [-4, 0]) == 0


def test_resources_are_ordered_with_gpus_first():
    wanted = Shape({MEMORY: 1, CPU: 1, GPU: 1, "rdma": 1, PODS: 1})
    one = Node("n", {"rdma": 1, GPU: 1, CPU: 1, MEMORY: 1, PODS: 1})
    assert capacity_of(one, shapes=(wanted,)).resources == (GPU, CPU, MEMORY, "rdma", PODS)
