"""Random snapshots for properties of the planner: all variations, in small numbers."""

import functools
import random
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from raytide.api.pod_requirements import CPU, NodeRequirement, PodToleration
from raytide.fairshare.algorithm.model import MEMORY, AllocationOptions, Node, Participant, Taint
from support.elastic_builders import GPU, World, amounts, companion, external_pod, job, master, node, quota, shape

ZONES = ("east", "west")
DEDICATED = Taint("dedicated", "training")
TOLERATED = PodToleration("dedicated", "Equal", "training")
IN_EAST = (NodeRequirement("zone", "In", frozenset({"east"})),)


SEEDS = st.integers(0, (1 << 32) - 1)
"""One number per node and per job: drawing every field by itself would take longer than everything else."""
REFUSED = st.sampled_from([{"priority": 0}, {"priority": 3}, {"priority": 9}, {"priority": 9, "may_preempt": False}])
OTHERS = st.sampled_from([(), (), (), (1,), (1000,), (1, 1000)])
QUOTAS = st.sampled_from([(), (), (), (quota("one", cpu=6000),), (quota("two", pods=5),)])
LOADS = st.sampled_from([{}, {}, {CPU: 80, GPU: 50}, {MEMORY: 50}])


@functools.cache  # Hypothesis looks through each strategy that is new to it, which takes longer than to draw from it
def between(low: int, high: int) -> st.SearchStrategy[int]:
    """A number, bounds included."""
    return st.integers(low, high)


def node_of(chance: random.Random, name: str) -> Node:
    """Some have GPUs, a label, a taint, few pods, other workloads' use; some are cordoned."""
    cpu = chance.randint(0, 10)
    gpu = chance.choice([0, 0, 2, 4])
    return node(
        name,
        cpu=cpu,
        gpu=gpu,
        memory=chance.choice([64, 8]),
        pods=chance.choice([110, 110, 3]),
        used=amounts(cpu=min(cpu, chance.choice([0, 0, 1, 2.5])), gpu=min(gpu, chance.randint(0, 1))),
        labels={"zone": chance.choice(ZONES)},
        taints=chance.choice([(), (), (DEDICATED,)]),
        is_usable=chance.choice([True, True, True, False]),
    )


def participant_of(chance: random.Random, name: str) -> Participant:
    """Any job: fixed or elastic, below, within or above its bounds, with whatever comes with it."""
    floor, span = chance.randint(0, 3), chance.randint(0, 6)
    gpu = chance.choice([0, 0, 0, 1, 2])
    is_gang = gpu > 0 or chance.random() < 0.5
    floor = max(floor, int(is_gang))
    least = 0 if is_gang else floor
    wanted = shape(
        chance.choice([1, 1, 0.5, 2, 3]),
        gpu=gpu,
        memory=chance.choice([0, 0, 3]),
        limits=chance.choice([None, None, {CPU: 2000}]),
        terms=chance.choice([(), (), (IN_EAST,)]),
        tolerations=chance.choice([(), (TOLERATED,)]),
    )
    sizes, step = chance.choice([((), 1), ((), 1), ((), 2), (tuple(range(floor, floor + span + 1, 3)), 1)])
    return job(
        name,
        floor,
        floor + span,
        chance.randint(least, floor + span + 1),
        shape=wanted,
        is_gang=is_gang,
        priority=chance.choice([0, 0, 5]),
        namespace=chance.choice(["one", "two"]),
        created_at=f"2026-01-0{chance.randint(1, 3)}T00:00:00Z",
        core=chance.choice([(), (), (master(0.5),)]),
        companion=chance.choice([None, None, companion(2, 1, 3, cpu=0.5)]),
        sizes=sizes,
        step=step,
        may_grow=chance.choice([True, True, False]),
        grows_soon=chance.choice([True, False]),
        is_unproven=chance.random() < 0.1,
        may_shrink=chance.choice([True, True, False]),
        is_scaling_enabled=chance.choice([True, True, True, False]),
        uses_limits=chance.random() < 0.5,
        rebalances=chance.choice([False, False, True]),
        yields=chance.choice([False, False, True]),
        may_preempt=chance.choice([True, True, True, False]),
    )


@st.composite
def worlds(draw: DrawFn, *, most_nodes: int = 3, most_jobs: int = 5, are_usable: bool = False) -> World:
    """Nodes and jobs; the pods that exist are where kube-scheduler could have put them, before nodes were cordoned or since.

    `are_usable`: no node is cordoned.
    """
    there = [node_of(random.Random(draw(SEEDS)), f"node-{number}") for number in range(draw(between(1, most_nodes)))]
    if are_usable:
        there = [replace(each, is_usable=True) for each in there]
    those = [
        participant_of(random.Random(draw(SEEDS)), f"job-{number}") for number in range(draw(between(1, most_jobs)))
    ]
    refused = {"is_unschedulable": True, **draw(REFUSED)}
    others = [external_pod(cpu, count=2, **refused) for cpu in draw(OTHERS)]
    quotas = draw(QUOTAS)
    load = draw(LOADS)
    options = AllocationOptions(load)
    was_usable = draw(st.booleans())
    before = [replace(each, is_usable=True) for each in there] if was_usable else there
    world = World(before, those, external_pods=others, quotas=quotas, options=options)
    world.nodes = tuple(there)
    return world


@st.composite
def equal_worlds(draw: DrawFn, *, is_gang: bool = False) -> World:
    """Jobs with equal requests per instance, on any nodes: their fairness is one number."""
    there = [node(f"node-{number}", cpu=draw(between(1, 10))) for number in range(draw(between(1, 3)))]
    those = []
    for number in range(draw(between(1, 5))):
        floor, span = draw(between(1, 3)), draw(between(0, 6))
        those.append(job(f"job-{number}", floor, floor + span, draw(between(floor, floor + span)), is_gang=is_gang))
    return World(there, those).running()
