"""Random histories: the sidecar, an operator and Ray converge to the demand.

Histories of demand, faults, users and restarts are drawn for the simulated cluster of simulated_cluster.py, which checks every
write. At the end all faults are healed; after a while no more writes happen, every order is carried out, no feasible demand is
pending, and no node is idle above the minimum (RM:I21–I24, D12).
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raytide.api import constants
from support.builders import group, template
from unit.autoscaler.simulated_cluster import World

GRACE_S = 320
SETTLE_S = 400
REST_S = 60

KINDS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "two groups": lambda: [
        group("spot", replicas=0, high=6, priority=10),
        group("solid", replicas=0, high=8, priority=5),
    ],
    "replicas of two hosts": lambda: [
        group("spot", replicas=0, high=3, priority=10, numOfHosts=2),
        group("solid", replicas=0, high=8, priority=5),
    ],
    "nodes of two sizes": lambda: [
        group("spot", replicas=0, high=6, priority=10),
        group("solid", replicas=0, high=8, priority=5, template=template("ray-worker", cpu="2")),
    ],
}

EVENTS = st.one_of(
    st.tuples(st.just("demand"), st.integers(0, 14)),
    st.tuples(st.just("demand"), st.integers(0, 14)),
    st.tuples(st.just("wait"), st.integers(1, 40)),
    st.tuples(st.just("wait"), st.integers(1, 8)),
    st.tuples(st.just("gang"), st.integers(1, 4)),
    st.tuples(st.just("placed gangs end"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("block"), st.sampled_from(["spot", "solid"])),
    st.tuples(st.just("unblock"), st.just(0)),
    st.tuples(st.just("patches"), st.lists(st.sampled_from(["ok", "lost", "unheard"]), min_size=1, max_size=6)),
    st.tuples(st.just("killed at"), st.lists(st.sampled_from(["", "patch", "drain"]), min_size=1, max_size=6)),
    st.tuples(st.just("foreign"), st.integers(0, 9)),
    st.tuples(st.just("maximum"), st.integers(1, 8)),
    st.tuples(st.just("minimum"), st.integers(0, 2)),
    st.tuples(st.just("gcs away"), st.integers(1, 30)),
    st.tuples(st.just("head down"), st.integers(1, 30)),
    st.tuples(st.just("node dies"), st.integers(0, 9)),
    st.tuples(st.just("pod is evicted"), st.integers(0, 9)),
    st.tuples(st.just("operator away"), st.integers(1, 30)),
    st.tuples(st.just("paused"), st.integers(1, 20)),
    st.tuples(st.just("rejects"), st.just(0)),
    st.tuples(st.just("other client drains"), st.integers(0, 9)),
)


def replay(script: list[str]) -> Callable[[], str]:
    """One word after the other, then the first one for ever."""
    left = list(script)
    return lambda: left.pop() if left else "ok"


def apply_event(world: World, event: tuple[str, Any]) -> None:  # noqa: PLR0912 - one line per thing that can happen
    what, how = event
    match what:
        case "demand":
            world.demand(how)
        case "wait":
            world.run(how)
        case "gang":
            world.gangs.append((f"{len(world.gangs):032x}", how))
        case "placed gangs end":
            world.gangs = [(gang, size) for gang, size in world.gangs if gang not in world.placed]
            world.placed = {}
        case "restart":
            world.restart()
        case "block":
            world.blocked.add(how)
        case "unblock":
            world.blocked.clear()
        case "patches":
            world.fate_of_patches = replay(how)
        case "killed at":
            world.dies_at = replay(how)
        case "foreign":
            world.edit("spot", replicas=how)
        case "maximum":
            world.is_over_max_expected = True
            world.edit("spot", maxReplicas=how, minReplicas=min(how, world.spec_of("spot")["minReplicas"]))
        case "minimum":
            world.edit("spot", minReplicas=min(how, world.spec_of("spot")["maxReplicas"]))
        case "gcs away":
            world.is_gcs_away = True
            world.run(how)
            world.is_gcs_away = False
        case "head down":
            world.is_head_up = False
            world.run(how)
            world.is_head_up = True
        case "node dies" | "other client drains" | "pod is evicted":
            lose(world, what, how)
        case "operator away":
            world.has_operator = False
            world.run(how)
            world.has_operator = True
        case "paused":
            annotations = world.cluster["metadata"].setdefault("annotations", {})
            annotations[constants.AUTOSCALER_ANNOTATION] = constants.PAUSED
            before = len(world.writes)
            world.run(how)
            assert len(world.writes) == before, "paused: nothing is written"
            del annotations[constants.AUTOSCALER_ANNOTATION]
        case "rejects":
            world.rejects = set(world.nodes)


def lose(world: World, what: str, which: int) -> None:
    alive = [node for node in world.nodes.values() if node.status.value == "RUNNING"]
    if not alive:
        return
    node = alive[which % len(alive)]
    if what == "node dies":
        world.kill(node.node_id)
    elif what == "other client drains":
        world.preempt(node.node_id)
    elif node.pod in world.pods:
        world.evict(node.pod)


def heal(world: World) -> None:
    world.blocked.clear()
    world.rejects = set()
    world.fate_of_patches = lambda: "ok"
    world.dies_at = lambda: ""


def check_rest(world: World) -> None:
    """Nothing is written any more, and everything is as it should be."""
    before = len(world.writes)
    world.run(REST_S)
    assert len(world.writes) == before, f"still writing: {world.writes[before:]} {world.portrait()}"
    for spec in world.groups_now():
        name, hosts = spec["groupName"], spec.get("numOfHosts", 1)
        live = world.live(name)
        ordered = max(spec["minReplicas"], min(world.replicas(name), spec["maxReplicas"]))
        assert len(live) == ordered * hosts, world.portrait()
        assert len(live) <= spec["maxReplicas"] * hosts
        assert world.named(name) == []
    capacity = sum(g["maxReplicas"] * g.get("numOfHosts", 1) for g in world.groups_now())
    used = len(world.tasks) + sum(size for _, size in world.gangs)
    if used <= capacity and all(size <= capacity for _, size in world.gangs):
        assert world.waiting() == 0, world.portrait()
        assert len(world.placed) == len(world.gangs), world.portrait()
        assert not world.idle_above_minimum(), world.portrait()  # a waiting gang holds what it needs


@pytest.mark.rule("RM:I21", "RM:I22", "RM:I23", "RM:I24", "D12")
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    events=st.lists(EVENTS, min_size=1, max_size=14),
    kind=st.sampled_from(sorted(KINDS)),
    is_recorded=st.booleans(),
    last=st.integers(0, 12),
)
@example(
    events=[("minimum", 1), ("gcs away", 11), ("pod is evicted", 0), ("operator away", 1)],
    kind="replicas of two hosts",
    is_recorded=False,
    last=0,
)
@example(
    events=[("foreign", 3), ("gcs away", 11), ("node dies", 0)],
    kind="replicas of two hosts",
    is_recorded=False,
    last=7,
)
@example(  # without records a new process cannot know that the one before it wrote a second ago
    events=[
        ("paused", 19), ("foreign", 9), ("wait", 11), ("demand", 0), ("demand", 0), ("demand", 0), ("rejects", 0), ("gcs away", 21),
        ("maximum", 3), ("placed gangs end", 0), ("killed at", ["drain"]), ("maximum", 3), ("patches", ["lost"]), ("wait", 11),
    ],
    kind="two groups",
    is_recorded=False,
    last=8,
)  # fmt: skip
def test_every_history_converges_to_the_demand(
    events: list[tuple[str, Any]], kind: str, *, is_recorded: bool, last: int
):
    world = World(KINDS[kind](), is_recorded=is_recorded)
    for event in events:
        apply_event(world, event)
    heal(world)
    world.demand(last)
    world.run(SETTLE_S + (GRACE_S if world.is_over_max_expected else 0))
    check_rest(world)


@pytest.mark.rule("SC:S7")
@pytest.mark.parametrize("seed", range(6))
def test_changing_demand_under_faults_is_met_within_a_minute(seed: int):
    dice = Random(seed)
    world = World([group("cpu", replicas=0, high=40)], spec={"autoscalerOptions": {"idleTimeoutSeconds": 10}})
    world.fate_of_patches = lambda: dice.choice(["ok", "ok", "ok", "lost", "unheard"])
    world.dies_at = lambda: dice.choice(["", "", "", "patch", "drain"])
    for demand in (0, 42, 10, 40):
        world.demand(demand)
        world.run(60)
        assert len(world.live()) == min(demand, 40), world.portrait()
        assert not world.reports[-1].pending_requests, "nothing is launching any more"
