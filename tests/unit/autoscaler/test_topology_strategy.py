"""A placement group with a topology strategy gets nodes that share one value of a label, or none and a reason."""

from dataclasses import replace

import pytest

from raytide.autoscaler.gcs import gcs_pb2 as pb
from raytide.autoscaler.gcs.messages import decode_state, encode_gang
from raytide.autoscaler.model import Gang, GcsState, RayNode, Request, Topology, amounts_of, labels_of
from raytide.autoscaler.scheduling.topology import (
    BUNDLES_PER_PLACEMENT,
    MAX_BUNDLES,
    MAX_VALUES,
    Placements,
    Topologies,
)
from raytide.diagnosis.render import text_of
from support.builders import group as spec_group
from support.builders import template
from unit.autoscaler.scheduling.questions import ask, group, inside, pack_gang, running, spread
from unit.autoscaler.simulated_cluster import Node, World

pytestmark = pytest.mark.rule("FD:AS3-7")

RACK = Topology("rack")
PLACED = Topology("rack", (inside("rack", "b"),))
OTHER_STRATEGY = Topology("rack", is_known=False)


def of(gang: Gang, topology: Topology = RACK) -> Gang:
    return replace(gang, topology=topology)


def rack(name: str, *, most: int = 10, **more):
    """A group whose nodes have one CPU and are in this rack."""
    return group(name, most=most, labels={"rack": name}, CPU=1, **more)


def in_rack(name: str, value: str, group_: str = "mixed", free: int = 1):
    return running(name, group_, labels={"rack": value}, free={"CPU": free}, CPU=1)


MIXED = group("mixed", CPU=1)
ONE_NODE = Gang("x:STRICT_PACK|PENDING", (Request(amounts_of({"CPU": 1}), affinity=("_PG_x", "")),) * 2)


@pytest.mark.parametrize(
    ("groups", "nodes", "gangs", "launches", "waiting"),
    [
        pytest.param(
            [MIXED], [], [of(pack_gang("x", 2, CPU=1))], {}, 1, id="a group whose rack is unknown is not launched"
        ),
        pytest.param([MIXED], [], [pack_gang("x", 2, CPU=1)], {"mixed": 2}, 0, id="without a strategy it is"),
        pytest.param(
            [MIXED],
            [],
            [of(Gang("x:SPREAD|RESCHEDULING")), of(Gang("y:SPREAD|PENDING"), OTHER_STRATEGY)],
            {},
            0,
            id="a gang whose bundles are all placed waits for no rack",
        ),
        pytest.param(
            [MIXED, rack("b")],
            [],
            [of(pack_gang("x", 2, CPU=1))],
            {"b": 2},
            0,
            id="a group that names its rack is launched",
        ),
        pytest.param(
            [rack("a", most=2), rack("b", most=3)],
            [],
            [of(pack_gang("x", 3, CPU=1))],
            {"b": 3},
            0,
            id="only the rack that can have all nodes is launched",
        ),
        pytest.param(
            [rack("a", most=2), rack("b", most=2)],
            [],
            [of(pack_gang("x", 3, CPU=1))],
            {},
            1,
            id="two racks do not add up",
        ),
        pytest.param(
            [MIXED],
            [in_rack("n1", "a"), in_rack("n2", "b"), in_rack("n3", "a")],
            [of(pack_gang("x", 2, CPU=1))],
            {},
            0,
            id="running nodes of one rack are enough",
        ),
        pytest.param(
            [MIXED],
            [in_rack("n1", "a"), in_rack("n2", "b")],
            [of(pack_gang("x", 2, CPU=1))],
            {},
            1,
            id="running nodes of two racks are not",
        ),
        pytest.param(
            [rack("a"), rack("b")],
            [in_rack("n1", "b", "b")],
            [of(pack_gang("x", 3, CPU=1))],
            {"b": 2},
            0,
            id="the rack that has the most nodes",
        ),
        pytest.param(
            [rack("a"), rack("b")],
            [],
            [of(spread("x", 3, CPU=1))],
            {"a": 3},
            0,
            id="together with STRICT_SPREAD over nodes",
        ),
        pytest.param(
            [rack("a"), group("big", labels={"rack": "b"}, CPU=2)],
            [],
            [of(ONE_NODE)],
            {"big": 1},
            0,
            id="with STRICT_PACK on one",
        ),
        pytest.param(
            [rack("a"), rack("b")],
            [],
            [of(pack_gang("x", 2, CPU=1), PLACED)],
            {"b": 2},
            0,
            id="a group that lost nodes gets them in the rack of the others",
        ),
        pytest.param(
            [rack("a", most=5), rack("b", most=1)],
            [],
            [of(pack_gang("x", 2, CPU=1), PLACED)],
            {},
            1,
            id="and in no other",
        ),
        pytest.param(
            [rack("a")],
            [],
            [of(pack_gang("x", 2, CPU=1), OTHER_STRATEGY)],
            {},
            1,
            id="an unsupported strategy launches nothing",
        ),
        pytest.param(
            [rack("a", most=3)],
            [],
            [of(pack_gang("x", 2, CPU=1)), of(pack_gang("y", 2, CPU=1))],
            {"a": 2},
            1,
            id="the second one waits for more nodes",
        ),
        pytest.param(
            [rack("a", hosts=2)],
            [],
            [of(pack_gang("x", 3, CPU=1))],
            {"a": 4},
            0,
            id="replicas of several hosts are whole",
        ),
        pytest.param(
            [rack("a", most=2), rack("b", most=2)],
            [],
            [of(pack_gang("x", 2, CPU=1)), of(pack_gang("y", 2, CPU=1))],
            {"a": 2, "b": 2},
            0,
            id="each gang has its own rack",
        ),
    ],
)
def test_all_bundles_get_nodes_with_one_value_of_the_label(groups, nodes, gangs, launches, waiting):
    reply = ask(groups, nodes, gangs=tuple(gangs))
    assert (reply.launches, len(reply.unplaced_gangs), reply.impossible_gangs) == (launches, waiting, ())


def test_a_bundle_that_fits_no_node_is_impossible_whatever_the_topology():
    gang = of(pack_gang("x", 2, CPU=9))
    assert ask([rack("a")], gangs=(gang,)).impossible_gangs == (gang,)


def test_nodes_of_the_rack_that_a_gang_waits_for_are_not_idle():
    gang = of(pack_gang("x", 3, CPU=1))
    nodes = [running(f"n{n}", "b", labels={"rack": "b"}, idle_s=900, CPU=1) for n in range(2)]
    other = running("n9", "a", labels={"rack": "a"}, idle_s=900, CPU=1)
    blocked = replace(rack("b", most=3), available=0)
    reply = ask([rack("a", most=2), blocked], [*nodes, other], gangs=(gang,))
    assert [end.instance_id for end in reply.terminations] == ["n9"]


# --- the message of the GCS -------------------------------------------------------------------------------------------


def decoded(strategy: int, label: str = "rack", **more) -> Topology | None:
    requirement = pb.LocalityRequirement(
        locality_constraint=pb.LocalityConstraint(label_name=label, placement_strategy=strategy), **more
    )
    alternative = pb.BundleSelector(
        resource_requests=[pb.ResourceRequest(resources_bundle={"CPU": 1})], locality_requirement=requirement
    )
    entry = pb.GangResourceRequest(details="x", bundle_selectors=[alternative])
    sent = pb.ClusterResourceState(pending_gang_resource_requests=[entry])
    (gang,) = decode_state(pb.GetClusterResourceStateReply(cluster_resource_state=sent)).gangs
    return gang.topology


@pytest.mark.rule("AS:G-8")
def test_the_strategy_is_decoded_with_the_value_that_the_gang_already_has():
    kinds = pb.LocalityConstraint
    rule = pb.LabelConstraint(label_key="rack", operator=pb.LabelConstraint.IN, label_values=["b"])
    assert decoded(kinds.STRICT_PACK) == RACK
    assert decoded(kinds.STRICT_PACK, label_selector=pb.LabelSelector(label_constraints=[rule])) == PLACED
    assert decoded(kinds.STRICT_SPREAD) == OTHER_STRATEGY
    assert decoded(17) == OTHER_STRATEGY, "a strategy of a newer Ray"
    assert [decoded(kinds.PACK), decoded(kinds.SPREAD), decoded(kinds.STRICT_PACK, "")] == [None] * 3, "no requirement"


def test_the_numbers_are_those_of_the_installed_ray():
    autoscaler_pb2 = pytest.importorskip("ray.core.generated.autoscaler_pb2")
    entry = encode_gang(of(pack_gang("x", 1, CPU=1), PLACED)).SerializeToString()
    (selector,) = autoscaler_pb2.GangResourceRequest.FromString(entry).bundle_selectors
    requirement = selector.locality_requirement
    assert (requirement.locality_constraint.label_name, requirement.locality_constraint.placement_strategy) == (
        "rack",
        2,
    )
    (rule,) = requirement.label_selector.label_constraints
    assert (rule.label_key, list(rule.label_values)) == ("rack", ["b"])


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gangs", "bundles"), [(1, 1), (1, 100_000), (1000, 1), (300, 100), (100_000, 1)])
def test_the_placements_that_are_tried_are_bounded(gangs, bundles):
    asked = [Gang(str(n), (Request((("CPU", n),)),) * bundles, RACK) for n in range(gangs)]
    topologies = Topologies(asked, (), [labels_of({"rack": str(n)}) for n in range(5000)])
    placements = Placements()
    tried = [sum(1 for _ in placements.remaining(gang, topologies.selectors(gang), "")) for gang in asked]
    assert 1 <= sum(tried) <= MAX_BUNDLES / BUNDLES_PER_PLACEMENT
    assert sum(tried) * bundles <= MAX_BUNDLES + bundles
    assert max(tried) <= MAX_VALUES


def test_what_an_equal_gang_failed_is_not_tried_again():
    first, second = of(spread("x", 3, CPU=1)), of(spread("y", 3, CPU=1))
    selectors = Topologies([first], (), [labels_of({"rack": value}) for value in "abc"]).selectors(first)
    placements = Placements()
    assert next(placements.remaining(first, selectors[:1], "")) == selectors[0]
    assert [*placements.remaining(first, selectors[:2], "")] == [*selectors[:2]], "the last one may have succeeded"
    assert [*placements.remaining(second, selectors, "")] == [selectors[2]]
    assert [*placements.remaining(second, selectors, "another way")] == [*selectors]
    assert [*placements.remaining(of(spread("z", 4, CPU=1)), selectors, "")] == [*selectors]


def test_a_hundred_gangs_fill_fifty_racks():
    groups = [rack(f"r{number:02d}", most=6) for number in range(50)]
    reply = ask(groups, gangs=tuple(of(spread(f"{number:03d}", 3, CPU=1)) for number in range(100)))
    assert (reply.launches, reply.unplaced_gangs) == ({one.name: 6 for one in groups}, ())


def test_values_with_the_most_nodes_are_tried_first_where_nodes_may_be_launched():
    """On nodes that exist in the order of values: an order that follows the number of nodes changes with each launch."""
    gang = of(pack_gang("x", 1))
    types = [group(name, most=most, labels={"rack": name}) for name, most in (("a", 1), ("b", 9), ("c", 2))]
    topologies = Topologies([gang], types, [labels_of({"rack": "c"}), labels_of({"rack": "d"})])
    values = {
        is_launching: "".join(
            selector[0].values[0] for selector in topologies.selectors(gang, is_launching=is_launching)
        )
        for is_launching in (True, False)
    }
    assert values == {True: "cdba", False: "abcd"}


def test_a_launch_changes_no_choice_among_racks_that_can_have_the_gang():
    """The rack with the most nodes was taken: the launch for a task then moved the gang, and the task's node was asked for again."""
    groups = [rack("a", most=9), rack("b", most=9)]
    nodes = [
        in_rack(f"{name}{number}", name, group_=name) for name, count in (("a", 2), ("b", 2)) for number in range(count)
    ]
    gang = of(pack_gang("x", 2, CPU=1))
    first = ask(groups, nodes, gangs=(gang,))
    second = ask(groups, [*nodes, in_rack("b2", "b", group_="b")], gangs=(gang,))
    assert (first.launches, second.launches) == ({}, {})
    assert first.needed - {"a0", "a1"} == second.needed - {"a0", "a1"} == set(), "both leave the nodes of rack b idle"


# --- the whole sidecar ------------------------------------------------------------------------------------------------


HEAD = {"rayStartParams": {"num-cpus": "0"}, "template": template("ray-head")}


class Racks(World):
    """Each placement group must be in one rack; the nodes of group `mixed` are in turn in racks a and b."""

    topology = RACK

    def _state(self) -> GcsState:
        state = super()._state()
        sent = pb.ClusterResourceState(
            pending_gang_resource_requests=[encode_gang(replace(gang, topology=self.topology)) for gang in state.gangs]
        )
        return replace(state, gangs=decode_state(pb.GetClusterResourceStateReply(cluster_resource_state=sent)).gangs)

    def _ray_node(self, node: Node) -> RayNode:
        found = super()._ray_node(node)
        value = "ab"[self.created.index(node.pod) % 2] if node.group == "mixed" else node.group
        return replace(found, labels=labels_of({"rack": value})) if found.is_alive else found

    def _ray(self) -> None:
        """Ray places a gang in one rack only; here, in none."""
        waiting, self.gangs = self.gangs, []
        super()._ray()
        self.gangs = waiting


def reasons_of(world: World) -> list[tuple[str, int, str]]:
    return [(why.reason, why.count, text_of(why)) for why in world.record().why]


def test_a_mixed_rack_launches_nothing_and_the_reason_names_the_label_and_the_cure():
    world = Racks([spec_group("mixed", replicas=0)], spec={"headGroupSpec": HEAD})
    world.gangs = [("cd" * 18, 3)]
    world.run(60)
    assert (world.created, world.reports[-1].infeasible_gangs) == ([], ())
    message = (
        "pending: {CPU: 1} x 3; their topology_strategy requires nodes with one value of the label rack, and no value "
        "has enough of them: give each value a group with that label in its field `labels`, or raise maxReplicas of "
        "such groups"
    )
    assert reasons_of(world) == [("TopologyUnmet", 3, message)]


def test_that_all_live_nodes_are_in_one_rack_does_not_tell_the_rack_of_the_next_one():
    world = Racks([spec_group("a", replicas=2, low=2)], spec={"headGroupSpec": HEAD})
    world.run(30)
    world.gangs = [("cd" * 18, 3)]
    world.run(60)
    assert (len(world.created), [reason for reason, _, _ in reasons_of(world)]) == (2, ["TopologyUnmet"])


def test_a_strategy_that_is_not_supported_has_a_reason_that_says_so():
    world = Racks([spec_group("a", replicas=0, labels={"rack": "a"})], spec={"headGroupSpec": HEAD})
    world.topology = OTHER_STRATEGY
    world.gangs = [("cd" * 18, 2)]
    world.run(60)
    message = "pending: {CPU: 1} x 2; for the label rack use STRICT_PACK: other strategies are not supported"
    assert (world.created, reasons_of(world)) == ([], [("TopologyUnmet", 2, message)])


def test_the_rack_that_can_have_all_nodes_is_launched_once():
    groups = [spec_group(name, replicas=0, high=high, labels={"rack": name}) for name, high in (("a", 2), ("b", 3))]
    world = Racks([spec_group("mixed", replicas=0), *groups], spec={"headGroupSpec": HEAD})
    world.gangs = [("cd" * 18, 3)]
    world.run(120)
    assert ({name: world.replicas(name) for name in ("mixed", "a", "b")}, world.reasons()) == (
        {"mixed": 0, "a": 0, "b": 3},
        set(),
    )
    assert len(world.created) == 3
