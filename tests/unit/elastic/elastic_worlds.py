"""Random clusters for properties of the planner: what can differ does, in small numbers."""

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from elastic_builders import GPU, World, amounts, companion, job, master, node, quota, shape, stranger
from raytide.elastic.model import CPU, MEMORY, Node, Participant, PoolOptions, Requirement, Taint, Toleration

ZONES = ("east", "west")
DEDICATED = Taint("dedicated", "training")
TOLERATED = Toleration("dedicated", "Equal", "training")
IN_EAST = (Requirement("zone", "In", ("east",)),)


@st.composite
def nodes(draw: DrawFn, name: str) -> Node:
    """Some have GPUs, a label, a taint, few pods, strangers' use; some are cordoned."""
    cpu = draw(st.integers(0, 10))
    gpu = draw(st.sampled_from([0, 0, 2, 4]))
    return node(
        name,
        cpu=cpu,
        gpu=gpu,
        memory=draw(st.sampled_from([64, 8])),
        pods=draw(st.sampled_from([110, 110, 3])),
        used=amounts(cpu=min(cpu, draw(st.sampled_from([0, 0, 1, 2.5]))), gpu=min(gpu, draw(st.integers(0, 1)))),
        labels={"zone": draw(st.sampled_from(ZONES))},
        taints=draw(st.sampled_from([(), (), (DEDICATED,)])),
        is_usable=draw(st.sampled_from([True, True, True, False])),
    )


@st.composite
def participants(draw: DrawFn, name: str) -> Participant:
    """Any job: fixed or elastic, below, within or above its bounds, with whatever comes with it."""
    floor, span = draw(st.integers(0, 3)), draw(st.integers(0, 6))
    gpu = draw(st.sampled_from([0, 0, 0, 1, 2]))
    is_gang = gpu > 0 or draw(st.booleans())
    least = 0 if is_gang else floor
    wanted = shape(
        draw(st.sampled_from([1, 1, 0.5, 2, 3])),
        gpu=gpu,
        memory=draw(st.sampled_from([0, 0, 3])),
        limits=draw(st.sampled_from([None, None, {CPU: 2000}])),
        terms=draw(st.sampled_from([(), (), (IN_EAST,)])),
        tolerations=draw(st.sampled_from([(), (TOLERATED,)])),
    )
    sizes, step = draw(st.sampled_from([((), 1), ((), 1), ((), 2), (tuple(range(floor, floor + span + 1, 3)), 1)]))
    return job(
        name,
        floor,
        floor + span,
        draw(st.integers(least, floor + span + 1)),
        shape=wanted,
        is_gang=is_gang,
        priority=draw(st.sampled_from([0, 0, 5])),
        namespace=draw(st.sampled_from(["one", "two"])),
        created_at=f"2026-01-0{draw(st.integers(1, 3))}T00:00:00Z",
        core=draw(st.sampled_from([(), (), (master(0.5),)])),
        companion=draw(st.sampled_from([None, None, companion(2, 1, 3, cpu=0.5)])),
        sizes=sizes,
        step=step,
        may_grow=draw(st.sampled_from([True, True, False])),
        may_shrink=draw(st.sampled_from([True, True, False])),
        is_scaling_enabled=draw(st.sampled_from([True, True, True, False])),
        is_accounted_by_limits=draw(st.booleans()),
        rebalances=draw(st.sampled_from([False, False, True])),
    )


@st.composite
def worlds(draw: DrawFn, *, most_nodes: int = 3, most_jobs: int = 5) -> World:
    """Nodes and jobs; the pods that exist are where kube-scheduler could have put them."""
    there = [draw(nodes(f"node-{number}")) for number in range(draw(st.integers(1, most_nodes)))]
    those = [draw(participants(f"job-{number}")) for number in range(draw(st.integers(1, most_jobs)))]
    others = [stranger(cpu, count=2) for cpu in draw(st.sampled_from([(), (), (), (1,), (1000,), (1, 1000)]))]
    quotas = draw(st.sampled_from([(), (), (), (quota("one", cpu=6000),), (quota("two", pods=5),)]))
    load = draw(st.sampled_from([{}, {}, {CPU: 80, GPU: 50}, {MEMORY: 50}]))
    return World(there, those, strangers=others, quotas=quotas, options=PoolOptions(load))


@st.composite
def equal_worlds(draw: DrawFn, *, is_gang: bool = False) -> World:
    """Jobs whose instances want the same, on any nodes: where fairness can be told in one number."""
    there = [node(f"node-{number}", cpu=draw(st.integers(1, 10))) for number in range(draw(st.integers(1, 3)))]
    those = []
    for number in range(draw(st.integers(1, 5))):
        floor, span = draw(st.integers(1, 3)), draw(st.integers(0, 6))
        those.append(job(f"job-{number}", floor, floor + span, draw(st.integers(floor, floor + span)), is_gang=is_gang))
    return World(there, those).running()
