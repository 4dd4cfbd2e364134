"""Messages of the GCS: replies are decoded and validated, reports are encoded as Ray reads them."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytide.autoscaler.gcs import gcs_pb2 as pb
from raytide.autoscaler.gcs.messages import (
    REPORTED_ONE_BY_ONE,
    NodeCache,
    decode_state,
    encode_demand,
    encode_gang,
    encode_report,
)
from raytide.autoscaler.model import (
    RESOURCE_UNIT_SCALING,
    Demand,
    FailedRequest,
    Gang,
    GcsState,
    LabelConstraint,
    NodeStatus,
    PendingInstance,
    PendingRequest,
    RayNode,
    Report,
    Request,
)
from support.fake_gcs import GcsWorld, fake_gcs, node_id_of

CPU = Request((("CPU", RESOURCE_UNIT_SCALING),))
PG = "_PG_aa"
PLACEMENT_GROUP = "2a" * 14 + "01000000"


def decode(**fields) -> GcsState:
    return decode_state(pb.GetClusterResourceStateReply(cluster_resource_state=pb.ClusterResourceState(**fields)))


def asked(resources: dict[str, float], *, count: int = 1, **more) -> pb.ResourceRequestByCount:
    request = pb.ResourceRequest(resources_bundle=resources, **more)
    return pb.ResourceRequestByCount(request=request, count=count)


def selector(operator: int, *values: str) -> pb.LabelSelector:
    rule = pb.LabelConstraint(label_key="zone", operator=operator, label_values=values)
    return pb.LabelSelector(label_constraints=[rule])


# --- nodes ---


@pytest.mark.rule("AS:G-2", "AS:G-3", "AS:G-4", "AS:G-5")
def test_a_node_is_read_with_everything_the_scheduler_needs() -> None:
    node = pb.NodeState(
        node_id=b"\x01\xff",
        instance_id="pod-1",
        ray_node_type_name="gpu",
        total_resources={"GPU": 2, "CPU": 0.5},
        available_resources={"CPU": 0.1},
        dynamic_labels={PG: ""},
        labels={"ray.io/node-group": "gpu"},
        status=pb.NodeState.IDLE,
        idle_duration_ms=1500,
        node_ip_address="10.0.0.1",
    )
    state = decode(node_states=[node], cluster_resource_state_version=7, cluster_session_name="s")
    expected = RayNode(
        node_id="01ff",
        status=NodeStatus.IDLE,
        instance_id="pod-1",
        node_type="gpu",
        total=(("CPU", 5_000), ("GPU", 20_000)),
        available=(("CPU", 1_000),),
        labels=(("ray.io/node-group", "gpu"),),
        dynamic_labels=((PG, ""),),
        idle_ms=1500,
        address="10.0.0.1",
    )
    assert state == GcsState(nodes=(expected,), version=7, session="s")


@pytest.mark.parametrize(("number", "status"), list(enumerate([*NodeStatus, NodeStatus.UNSPECIFIED])))
def test_the_status_of_a_node_is_rays_and_a_new_one_is_not_a_dead_one(number: int, status: NodeStatus) -> None:
    (node,) = decode(node_states=[pb.NodeState(node_id=b"1", status=number)]).nodes
    assert node.status is status


@pytest.mark.parametrize("amount", [-1.0, math.nan, math.inf, -math.inf])
def test_an_impossible_amount_on_a_node_is_left_out_and_the_node_stays(amount: float) -> None:
    node = pb.NodeState(node_id=b"1", total_resources={"CPU": 4, "GPU": amount}, available_resources={"GPU": amount})
    state = decode(node_states=[node])
    assert (state.nodes[0].total, state.nodes[0].available) == ((("CPU", 40_000),), ())
    assert state.problems == (f"invalid resource amounts of nodes skipped: 2, the first is GPU = {amount}",)


def test_a_tiny_negative_amount_is_zero() -> None:
    node = pb.NodeState(node_id=b"1", available_resources={"CPU": -1e-9})
    assert decode(node_states=[node]) == GcsState(
        nodes=(RayNode("31", NodeStatus.UNSPECIFIED, available=(("CPU", 0),)),)
    )


def test_a_node_without_an_id_or_listed_twice_counts_once_at_most() -> None:
    nodes = [
        pb.NodeState(instance_id="nobody"),
        pb.NodeState(node_id=b"1", instance_id="first"),
        pb.NodeState(node_id=b"1", instance_id="second"),
    ]
    state = decode(node_states=nodes)
    assert [node.instance_id for node in state.nodes] == ["first"]
    assert len(state.problems) == 2


def test_a_clock_that_runs_backwards_makes_no_node_idle() -> None:
    (node,) = decode(node_states=[pb.NodeState(node_id=b"1", idle_duration_ms=-5)]).nodes
    assert node.idle_ms == 0


# --- demand ---


@pytest.mark.rule("AS:G-6", "AS:G-7")
def test_a_task_is_read_with_its_alternatives_in_order_and_an_empty_one_is_kept() -> None:
    selectors = [
        selector(pb.LabelConstraint.IN, "b", "a"),
        selector(pb.LabelConstraint.NOT_IN, "c"),
        pb.LabelSelector(),
    ]
    state = decode(pending_resource_requests=[asked({"CPU": 1, "GPU": 0}, count=3, label_selectors=selectors)])
    alternatives = (
        (LabelConstraint("zone", ("a", "b")),),
        (LabelConstraint("zone", ("c",), is_in=False),),
        (),
    )
    assert state.tasks == (Demand(Request((("CPU", RESOURCE_UNIT_SCALING), ("GPU", 0)), alternatives), 3),)
    assert not state.problems


@pytest.mark.parametrize("operator", [0, 3, 17])
def test_an_unknown_label_operator_is_marked_as_unknown(operator: int) -> None:
    (demand,) = decode(pending_resource_requests=[asked({"CPU": 1}, label_selectors=[selector(operator, "a")])]).tasks
    assert demand.request.selectors == ((LabelConstraint("zone", ("a",), is_known=False),),)


@pytest.mark.parametrize("resources", [{"CPU": -1.0}, {"CPU": math.nan}, {"CPU": 1.0, "GPU": math.inf}])
def test_a_demand_that_cannot_be_is_skipped_and_the_others_stay(resources: dict[str, float]) -> None:
    state = decode(pending_resource_requests=[asked(resources), asked({"CPU": 1}), asked(resources)])
    assert state.tasks == (Demand(CPU),)
    (problem,) = state.problems
    assert problem.startswith("demands with invalid resource amounts skipped: 2, the first is {'CPU': ")


@pytest.mark.parametrize("count", [0, -1, -(2**63)])
def test_an_empty_demand_is_skipped(count: int) -> None:
    state = decode(pending_resource_requests=[asked({"CPU": 1}, count=count), asked({"GPU": 1})])
    assert state.tasks == (Demand(Request((("GPU", RESOURCE_UNIT_SCALING),))),)
    assert len(state.problems) == 1


@pytest.mark.rule("FD:AS3-1")
@pytest.mark.parametrize("resource", ["CPU", "GPU", "memory", "gold", "accelerator_type:T4", "my_group_1", "bundle"])
@pytest.mark.parametrize("part", ["", "0_", "17_"], ids=["any bundle", "bundle 0", "bundle 17"])
def test_work_in_a_placement_group_is_no_demand_for_nodes(resource: str, part: str) -> None:
    name = f"{resource}_group_{part}{PLACEMENT_GROUP}"
    state = decode(pending_resource_requests=[asked({name: 0.5}), asked({"CPU": 1}), asked({name: 1}, count=3)])
    assert state == GcsState(tasks=(Demand(CPU),))


@pytest.mark.rule("FD:AS3-1")
@pytest.mark.parametrize(
    "resource",
    [
        pytest.param("node:10.0.0.1", id="the node of an address, which may be alive"),
        pytest.param("node:__internal_head__", id="the head"),
        pytest.param("my_group_1", id="a resource of the user's"),
        pytest.param(f"my_group_{PLACEMENT_GROUP[1:]}", id="too short for an id of a placement group"),
        pytest.param(f"CPU_group_{PLACEMENT_GROUP}_x", id="an id in the middle"),
    ],
)
def test_other_unusual_resources_are_demand(resource: str) -> None:
    (demand,) = decode(pending_resource_requests=[asked({resource: 1})]).tasks
    assert demand.request.amounts == ((resource, RESOURCE_UNIT_SCALING),)


def test_a_hundred_thousand_invalid_amounts_are_one_problem() -> None:
    state = decode(pending_resource_requests=[asked({f"r{n}": -1}) for n in range(100_000)])
    assert state.problems == ("demands with invalid resource amounts skipped: 100000, the first is {'r0': -1.0}",)


# --- gangs ---


def bundle(constraint: pb.PlacementConstraint | None = None, cpus: float = 1) -> pb.ResourceRequest:
    return pb.ResourceRequest(
        resources_bundle={"CPU": cpus}, placement_constraints=[] if constraint is None else [constraint]
    )


NAME = pb.LabelName(label_name=PG)
AFFINITY = pb.PlacementConstraint(affinity=NAME)
ANTI = pb.PlacementConstraint(anti_affinity=NAME)


@pytest.mark.rule("AS:G-8")
@pytest.mark.parametrize(
    ("constraint", "request_"),
    [
        pytest.param(None, CPU, id="PACK and SPREAD add no constraint"),
        pytest.param(AFFINITY, replace(CPU, affinity=(PG, "")), id="STRICT_PACK keeps together"),
        pytest.param(ANTI, replace(CPU, anti_affinity=(PG, "")), id="STRICT_SPREAD keeps apart"),
    ],
)
def test_a_gang_is_read_by_its_strategy(constraint: pb.PlacementConstraint | None, request_: Request) -> None:
    entry = pb.GangResourceRequest(
        details="aa:X|PENDING",
        requests=[bundle()] * 5,
        bundle_selectors=[pb.BundleSelector(resource_requests=[bundle(constraint)] * 2), pb.BundleSelector()],
    )
    assert decode(pending_gang_resource_requests=[entry]).gangs == (Gang("aa:X|PENDING", (request_, request_)),)


def test_a_gang_of_an_older_ray_has_its_bundles_in_the_old_place() -> None:
    entry = pb.GangResourceRequest(details="aa", requests=[bundle(ANTI)])
    assert decode(pending_gang_resource_requests=[entry]).gangs == (
        Gang("aa", (replace(CPU, anti_affinity=(PG, "")),)),
    )


def test_a_gang_without_bundles_is_ignored_without_a_problem() -> None:
    entries = [pb.GangResourceRequest(details="aa"), pb.GangResourceRequest(bundle_selectors=[pb.BundleSelector()])]
    assert decode(pending_gang_resource_requests=entries) == GcsState()


def test_a_gang_with_one_impossible_bundle_is_skipped_whole() -> None:
    entries = [
        pb.GangResourceRequest(details="bad", requests=[bundle(), bundle(cpus=math.nan)]),
        pb.GangResourceRequest(details="good", requests=[bundle()]),
    ]
    state = decode(pending_gang_resource_requests=entries)
    assert state.gangs == (Gang("good", (CPU,)),)
    assert state.problems == ("gangs with invalid resource amounts skipped: 1, the first is {'CPU': nan}",)


def test_of_several_placement_constraints_of_a_kind_the_first_counts_and_it_is_reported() -> None:
    other = pb.PlacementConstraint(affinity=pb.LabelName(label_name="other"))
    request = pb.ResourceRequest(resources_bundle={"CPU": 1}, placement_constraints=[AFFINITY, ANTI, other])
    state = decode(pending_gang_resource_requests=[pb.GangResourceRequest(details="x", requests=[request])])
    assert state.gangs[0].bundles == (replace(CPU, affinity=(PG, ""), anti_affinity=(PG, "")),)
    assert len(state.problems) == 1


# --- the constraint of request_resources() ---


@pytest.mark.rule("AS:G-9")
@pytest.mark.parametrize(
    ("constraints", "expected"),
    [
        pytest.param([], None, id="request_resources was not called"),
        pytest.param([pb.ClusterResourceConstraint()], (), id="the last call was empty"),
        pytest.param(
            [pb.ClusterResourceConstraint(resource_requests=[asked({"CPU": 1}, count=100)])], (Demand(CPU, 100),)
        ),
    ],
)
def test_the_constraint_is_absent_empty_or_there(constraints, expected) -> None:
    assert decode(cluster_resource_constraints=constraints) == GcsState(constraint=expected)


def test_of_several_constraints_the_first_counts_and_it_is_reported() -> None:
    constraints = [pb.ClusterResourceConstraint(resource_requests=[asked({name: 1})]) for name in ("CPU", "GPU")]
    state = decode(cluster_resource_constraints=constraints)
    assert state.constraint == (Demand(CPU),)
    assert len(state.problems) == 1


# --- what may come ---


def test_unknown_fields_are_skipped() -> None:
    known = pb.ClusterResourceState(cluster_session_name="s").SerializeToString()
    unknown = b"\xf2\x07\x05later\xf8\x07\x2a"  # field 126, five bytes; field 127, a number
    reply = pb.GetClusterResourceStateReply.FromString(
        b"\x0a" + bytes([len(known + unknown)]) + known + unknown + unknown
    )
    assert decode_state(reply) == GcsState(session="s")


names = st.sampled_from(["CPU", "GPU", "memory", "accelerator_type:A100"])
amounts = st.dictionaries(names, st.integers(0, 10**12), max_size=3).map(lambda found: tuple(sorted(found.items())))
rules = st.builds(
    LabelConstraint,
    st.text(max_size=3),
    st.lists(st.text(max_size=2), max_size=3).map(sorted).map(tuple),
    is_in=st.booleans(),
)
pairs = st.none() | st.tuples(st.text(max_size=2), st.text(max_size=2))
requests = st.builds(
    Request,
    amounts,
    st.lists(st.lists(rules, max_size=2).map(tuple), max_size=2).map(tuple),
    affinity=pairs,
    anti_affinity=pairs,
)


@given(
    st.lists(st.builds(Demand, requests, st.integers(1, 2**63 - 1)), max_size=3),
    st.lists(requests, min_size=1, max_size=3),
)
def test_what_is_written_reads_as_it_was(demands: list[Demand], bundles: list[Request]) -> None:
    gang = Gang("aa:PACK|PENDING", tuple(bundles))
    state = decode(
        pending_resource_requests=map(encode_demand, demands), pending_gang_resource_requests=[encode_gang(gang)]
    )
    assert state == GcsState(tasks=tuple(demands), gangs=(gang,))


# --- the report ---


@pytest.mark.rule("AS:5.5", "AS:G-11")
def test_a_report_has_an_entry_for_each_requested_node() -> None:
    report = Report(
        gcs_version=5,
        version=9,
        pending_requests=(PendingRequest("gpu", 3, 100), PendingRequest("cpu", 1, 101)),
        pending_instances=(PendingInstance("gpu", "pod-1", "10.0.0.1", "pulling"),),
        failed_requests=(FailedRequest("gpu", 2, "no quota", 90, 95),),
        infeasible=(Demand(CPU, 4),),
        infeasible_gangs=(Gang("aa:PACK|PENDING", (CPU,)),),
        infeasible_constraint=(Demand(CPU, 100),),
    )
    state = encode_report(report).autoscaling_state
    assert [(entry.ray_node_type_name, entry.count, entry.request_ts) for entry in state.pending_instance_requests] == [
        *[("gpu", 1, 100)] * 3,
        ("cpu", 1, 101),
    ]
    assert state == pb.AutoscalingState(
        last_seen_cluster_resource_state_version=5,
        autoscaler_state_version=9,
        pending_instance_requests=state.pending_instance_requests,
        pending_instances=[
            pb.PendingInstance(ray_node_type_name="gpu", instance_id="pod-1", ip_address="10.0.0.1", details="pulling")
        ],
        failed_instance_requests=[
            pb.FailedInstanceRequest(ray_node_type_name="gpu", count=2, reason="no quota", start_ts=90, failed_ts=95)
        ],
        infeasible_resource_requests=[bundle()],
        infeasible_gang_resource_requests=[
            pb.GangResourceRequest(
                details="aa:PACK|PENDING",
                requests=[bundle()],
                bundle_selectors=[pb.BundleSelector(resource_requests=[bundle()])],
            )
        ],
        infeasible_cluster_resource_constraints=[
            pb.ClusterResourceConstraint(resource_requests=[asked({"CPU": 1}, count=100)])
        ],
    )


@pytest.mark.parametrize(
    ("constraint", "entries"), [pytest.param(None, 0, id="none"), pytest.param((), 1, id="one without requests")]
)
def test_an_infeasible_constraint_is_reported_only_where_there_is_one(constraint, entries: int) -> None:
    state = encode_report(Report(1, 1, infeasible_constraint=constraint)).autoscaling_state
    assert len(state.infeasible_cluster_resource_constraints) == entries


def test_many_requested_nodes_do_not_make_as_many_entries() -> None:
    pending = (PendingRequest("a", 10**12), PendingRequest("b", 2))
    state = encode_report(Report(1, 1, pending_requests=pending)).autoscaling_state
    entries = state.pending_instance_requests
    assert len(entries) == REPORTED_ONE_BY_ONE + 2
    assert [(entry.ray_node_type_name, entry.count) for entry in entries[-2:]] == [("a", 2**31 - 1), ("b", 2)]


async def test_the_fake_stores_reports_and_returns_them_as_ray_would() -> None:
    world = GcsWorld()
    node = world.add_node("pod-1", "gpu", resources={"GPU": 2.0}, address="10.0.0.1")
    world.kill_node(world.add_node("pod-2", "gpu").instance_id)
    world.tasks.append(Demand(CPU, 2))
    state = await fake_gcs(world).state()
    dead = RayNode(node_id_of("pod-2"), NodeStatus.DEAD, "pod-2", "gpu")
    assert state == GcsState(nodes=(node, dead), tasks=(Demand(CPU, 2),), version=1, session="session_1")


def reply_of(*nodes: pb.NodeState) -> pb.GetClusterResourceStateReply:
    return pb.GetClusterResourceStateReply(cluster_resource_state=pb.ClusterResourceState(node_states=nodes))


def test_unchanged_nodes_are_the_same_objects_as_before():
    cache: NodeCache = {}
    busy = pb.NodeState(node_id=b"\1", total_resources={"CPU": 2.0, "memory": 1e9}, labels={"a": "b"})
    idle = pb.NodeState(node_id=b"\2", total_resources={"CPU": 2.0}, idle_duration_ms=5)
    first = decode_state(reply_of(busy, idle), cache)
    idle.idle_duration_ms = 9
    second = decode_state(reply_of(busy, idle), cache)
    assert second == replace(first, nodes=(first.nodes[0], replace(first.nodes[1], idle_ms=9)))
    assert second.nodes[0] is first.nodes[0]
    busy.total_resources["CPU"] = 3.0
    third = decode_state(reply_of(busy), cache)
    assert dict(third.nodes[0].total)["CPU"] == 3 * RESOURCE_UNIT_SCALING
    assert len(cache) == 1, "nothing is kept of nodes that are gone"


def test_invalid_amounts_of_a_cached_node_are_reported_every_time():
    cache: NodeCache = {}
    for _ in range(2):
        state = decode_state(reply_of(pb.NodeState(node_id=b"\1", total_resources={"CPU": -1.0})), cache)
        assert len(state.problems) == 1
