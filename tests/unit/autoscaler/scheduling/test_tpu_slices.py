"""TPU slices: worker 0 of each has an additional resource and label, and a slice is launched as a whole."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raytide.autoscaler.feasibility import could_hold
from raytide.autoscaler.model import (
    Demand,
    Gang,
    Instance,
    NodeStatus,
    NodeType,
    RayNode,
    Request,
    SchedulingReply,
    SchedulingRequest,
    Status,
    amounts_of,
    labels_of,
)
from raytide.autoscaler.scheduling.schedule import schedule
from raytide.autoscaler.state.node_types import node_types
from support.builders import group, template
from unit.autoscaler.scheduling.questions import HEAD, head, inside, needs, spread, tasks

HOSTS = 4
SLICE_HEAD = "TPU-v4-32-head"
KIND = {"ray.io/tpu-pod-type": "v4-32", "ray.io/tpu-topology": "2x2x4"}
ASKED = frozenset({"TPU", SLICE_HEAD})


def spec(hosts: int = HOSTS, topology: str = "2x2x4"):
    made = template("ray-worker")
    made["spec"]["nodeSelector"] = {
        "cloud.google.com/gke-tpu-topology": topology,
        "cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice",
    }
    made["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "8", "google.com/tpu": "4"}}
    return {"workerGroupSpecs": [group("tpu", numOfHosts=hosts, replicas=0, high=8, template=made)]}


def slice_type(*live: RayNode, hosts: int = HOSTS) -> NodeType:
    return node_types(spec(hosts), live, ASKED).by_name()["tpu"]


def offer(name: str, worker: int) -> tuple[dict[str, float], dict[str, str]]:
    """What Ray 2.60 gives a host whose pod has TPU_NAME, TPU_WORKER_ID and its accelerator's type and topology."""
    first = {SLICE_HEAD: 1} if worker == 0 else {}
    labels = {**KIND, "ray.io/tpu-slice-name": name, "ray.io/tpu-worker-id": str(worker)}
    return {"CPU": 8, "TPU": 4, name: 1, **first}, labels


def live(name: str, *, taken: tuple[str, ...] = (), workers=range(HOSTS)) -> tuple[Instance, ...]:
    """The hosts of a slice; nothing of the resources in `taken` is free."""
    found = []
    for worker in workers:
        total, labels = offer(name, worker)
        found.append(
            Instance(
                f"{name}-{worker}",
                "tpu",
                Status.RAY_RUNNING,
                pod=f"{name}-{worker}",
                node_id=f"id-{name}-{worker}",
                total=amounts_of(total),
                available=amounts_of({key: value for key, value in total.items() if key not in taken}),
                labels=labels_of(labels),
                replica=name,
            )
        )
    return tuple(found)


def coming(name: str, workers=range(HOSTS)) -> tuple[Instance, ...]:
    return tuple(
        Instance(f"{name}-{worker}", "tpu", Status.ALLOCATED, pod=f"{name}-{worker}", replica=name)
        for worker in workers
    )


def asked_for(count: int) -> list[Demand]:
    """`ray.util.tpu.reserve_tpu_slice`, that often."""
    selector = (inside("ray.io/tpu-worker-id", "0"), inside("ray.io/tpu-pod-type", "v4-32"))
    return [Demand(needs((selector,), **{SLICE_HEAD: 1}), count)]


def decided(*there: Instance, demand=(), gangs=(), kind: NodeType | None = None) -> SchedulingReply:
    question = SchedulingRequest((HEAD, kind or slice_type()), (head(), *there), tuple(demand), tuple(gangs))
    return schedule(question)


@pytest.mark.rule("FD:AS-A12", "AS:B-22")
@pytest.mark.parametrize(
    ("there", "slices", "launched"),
    [
        pytest.param((), 1, 1, id="the first slice"),
        pytest.param((), 4, 4, id="four slices are four heads"),
        pytest.param(live("s"), 1, 0, id="the slice that is there"),
        pytest.param(live("s"), 2, 1, id="one slice besides the one that is there"),
        pytest.param(live("s", taken=(SLICE_HEAD,)), 1, 1, id="the slice that is there is reserved"),
        pytest.param(coming("s"), 1, 0, id="the slice that comes"),
        pytest.param(coming("s"), 3, 2, id="two besides the one that comes"),
        pytest.param((*live("s", workers=[0]), *coming("s", [1, 2, 3])), 2, 1, id="worker 0 is there already"),
        pytest.param((*live("s", workers=[2]), *coming("s", [0, 1, 3])), 1, 0, id="worker 0 is still to come"),
        pytest.param(
            tuple(replace(one, replica="", status=Status.QUEUED, pod="") for s in "ab" for one in coming(s)),
            3,
            1,
            id="two slices are requested and have no pods yet",
        ),
    ],
)
def test_as_many_slices_come_as_are_reserved(there, slices, launched):
    decision = decided(*there, demand=asked_for(slices))
    assert decision.launches == ({"tpu": launched * HOSTS} if launched else {})
    assert (decision.unplaced, decision.impossible) == ((), ())


@pytest.mark.rule("FD:AS-A12")
@pytest.mark.parametrize("others", [0, 3], ids=["heads alone", "and three other hosts"])
@pytest.mark.parametrize("heads", [1, 2, 3, 4])
def test_a_gang_of_several_slices_gets_a_head_of_each(heads, others):
    bundles = (needs(**{SLICE_HEAD: 1}),) * heads + (needs(TPU=4),) * others
    decision = decided(gangs=[Gang("1:PACK|PENDING", bundles)])
    assert decision.launches == {"tpu": heads * HOSTS}
    assert decision.unplaced_gangs == ()


@pytest.mark.rule("FD:AS-A12")
def test_an_idle_slice_is_kept_for_a_gang_that_needs_further_slices():
    gang = Gang("1:PACK|PENDING", (needs(**{SLICE_HEAD: 1}),) * 3)
    idle = tuple(replace(host, idle_ms=3_600_000) for host in live("s"))
    decision = decided(*idle, gangs=[gang])
    assert (decision.launches, decision.terminations) == ({"tpu": 2 * HOSTS}, ())


@pytest.mark.rule("FD:AS-A12")
def test_many_slices_are_launched_in_one_pass():
    assert decided(demand=asked_for(8)).launches == {"tpu": 8 * HOSTS}


@pytest.mark.rule("FD:AS-A12")
def test_work_on_all_hosts_and_the_reservation_of_their_slice_are_one_slice():
    demand = [*asked_for(2), tasks(2 * HOSTS, TPU=4)]
    assert decided(demand=demand).launches == {"tpu": 2 * HOSTS}


@pytest.mark.rule("FD:AS-A12")
def test_the_workers_of_a_reserved_slice_take_its_hosts_and_no_other():
    workers = tuple(needs(((inside("ray.io/tpu-slice-name", "s"),),), TPU=4) for _ in range(HOSTS))
    gang = Gang("1:SPREAD|PENDING", workers)
    assert decided(*live("r"), *live("s"), gangs=[gang]).needed == {f"s-{worker}" for worker in range(HOSTS)}
    lost = decided(*live("r"), gangs=[gang])
    assert (lost.launches, lost.impossible_gangs) == ({}, (gang,)), "no new slice has the name of one that is gone"


@pytest.mark.rule("FD:AS-A12")
def test_workers_on_each_host_of_one_slice():
    assert decided(gangs=[spread("pg", HOSTS, TPU=4)]).launches == {"tpu": HOSTS}
    assert decided(*coming("s"), gangs=[spread("pg", HOSTS, TPU=4)]).launches == {}


@pytest.mark.rule("FD:AS-A12")
def test_what_no_slice_has_is_impossible():
    selector = (inside("ray.io/tpu-worker-id", "0"), inside("ray.io/tpu-pod-type", "v4-64"))
    larger = Demand(Request(amounts_of({"TPU-v4-64-head": 1}), (selector,)))
    assert decided(demand=[larger]).impossible == (larger,)
    assert not could_hold(slice_type(), larger.request)
    assert could_hold(slice_type(), asked_for(1)[0].request)
    assert not could_hold(slice_type(), needs(**{SLICE_HEAD: 2}))


@pytest.mark.rule("FD:AS-A12")
def test_a_minimum_of_slices_has_their_heads():
    decision = decided(demand=asked_for(2), kind=replace(slice_type(), min_nodes=2 * HOSTS))
    assert decision.launches == {"tpu": 2 * HOSTS}


@pytest.mark.rule("FD:AS-A12")
@pytest.mark.parametrize("workers", [[0], [0, 1, 2, 3], [1, 2]], ids=["worker 0", "all", "others"])
def test_resources_of_single_live_hosts_are_not_expected_of_all_hosts(workers):
    nodes = [
        RayNode(one.node_id, NodeStatus.IDLE, one.pod, "tpu", one.total, one.available, one.labels)
        for one in live("s", workers=workers)
    ]
    found = node_types(spec(), nodes, ASKED | {"s"}).by_name()["tpu"]
    assert dict(found.resources) == dict(amounts_of({"CPU": 8, "TPU": 4}))
    assert dict(found.first_resources) == dict(amounts_of({"CPU": 8, "TPU": 4, SLICE_HEAD: 1}))
    assert KIND.items() <= dict(found.labels).items()
    assert dict(found.first_labels) == {**dict(found.labels), "ray.io/tpu-worker-id": "0"}


@pytest.mark.rule("FD:AS-A12")
def test_a_head_resource_that_the_user_sets_too_counts_once():
    written = spec()
    written["workerGroupSpecs"][0]["rayStartParams"] = {"resources": f'"{{\\"{SLICE_HEAD}\\": 1}}"'}
    kind = node_types(written, (), ASKED).by_name()["tpu"]
    assert dict(kind.resources)[SLICE_HEAD] == 10_000
    assert [amount for name, amount in kind.first_resources if name == SLICE_HEAD] == [10_000]


@pytest.mark.rule("FD:AS-A12")
def test_a_slice_of_one_host_is_its_own_head():
    kind = node_types(spec(hosts=1), (), ASKED).by_name()["tpu"]
    assert dict(kind.resources)[SLICE_HEAD] == 10_000
    assert dict(kind.labels)["ray.io/tpu-worker-id"] == "0"
    assert not kind.has_first


@pytest.mark.rule("FD:AS-A12")
@settings(max_examples=150, deadline=None)
@given(
    heads=st.integers(0, 4),
    chips=st.integers(0, 9),
    cpus=st.integers(0, 6),
    there=st.booleans(),
    comes=st.booleans(),
    hosts=st.sampled_from((2, 4)),
)
def test_while_slices_are_pending_nothing_more_is_launched(*, heads, chips, cpus, there, comes, hosts):
    kind = replace(slice_type(hosts=hosts), max_nodes=8 * hosts)
    demand = [*asked_for(heads), tasks(chips, TPU=4), tasks(cpus, CPU=3)]
    now = [*(live("l", workers=range(hosts)) if there else ()), *(coming("c", range(hosts)) if comes else ())]
    first = decided(*now, demand=demand, kind=kind)
    count = first.launches.get("tpu", 0)
    assert count % hosts == 0
    new = [one for number in range(count // hosts) for one in coming(f"n{number}", range(hosts))]
    assert decided(*now, *new, demand=demand, kind=kind).launches == {}
