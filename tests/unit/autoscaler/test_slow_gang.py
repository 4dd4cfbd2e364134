"""A gang whose nodes start at very different times, with a shorter idle timeout (SC:S5)."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from raytide.api.autoscaler_decision import Backoff
from raytide.api.conditions import timestamp
from raytide.autoscaler.model import (
    COUNTABLE,
    Gang,
    NodeStatus,
    NodeType,
    RayNode,
    Request,
    SchedulingRequest,
    amounts_of,
)
from raytide.autoscaler.scheduling.fallback import schedule_with_fallback
from raytide.autoscaler.scheduling.schedule import schedule
from raytide.autoscaler.state.group_availability import AvailabilityInputs, assess_availability
from raytide.autoscaler.state.instance_lifecycle import Timers
from raytide.autoscaler.state.instances import instances
from raytide.autoscaler.state.node_types import NodeTypes
from raytide.autoscaler.state.observation import InstanceInputs
from support.builders import head, pending, pod

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CPU4 = amounts_of({"CPU": 4})
SIZE = 10
TYPES = NodeTypes((NodeType("headgroup", max_nodes=1), NodeType("cpu", max_nodes=30, resources=CPU4)))
HEAD = head()
HEAD_NODE = RayNode("h1", NodeStatus.IDLE, HEAD.name, "headgroup")
GANG = Gang("1:STRICT_SPREAD|PENDING", (Request(CPU4, anti_affinity=("_PG_1", "")),) * SIZE)


NEVER_S = 1000.0
"""What takes longer runs at once, and its Ray node never registers."""


class Slow:
    """Ten nodes are wanted at once; the n-th pod takes `starts_s[n]` seconds to become a Ray node."""

    def __init__(self, starts_s: list[float]) -> None:
        self._starts_s = starts_s
        self._created_s: dict[str, float] = {}
        self._timers = Timers()
        self._backoffs: dict[str, Backoff] = {}
        self.made = 0
        self.ended_s: list[int] = []
        """When, not who."""
        self.placed_s: float | None = None

    def run(self, until_s: int) -> None:
        for now_s in range(0, until_s, 5):
            self._tick(now_s)
            ready = [name for name in self._created_s if self._age_s(name, now_s) >= 0]
            if len(ready) >= SIZE and self.placed_s is None:
                self.placed_s = now_s

    def _age_s(self, name: str, now_s: float) -> float:
        """Since when its Ray node is there; negative before."""
        return now_s - self._created_s[name] - self._starts_s[int(name[1:])]

    def _tick(self, now_s: int) -> None:
        nodes = [
            RayNode(
                f"id-{name}", NodeStatus.IDLE, name, "cpu", CPU4, CPU4, idle_ms=int(self._age_s(name, now_s) * 1000)
            )
            for name in self._created_s
            if self._age_s(name, now_s) >= 0
        ]
        there = {node.instance_id for node in nodes}
        created = {name: timestamp(NOON + timedelta(seconds=at_s)) for name, at_s in self._created_s.items()}
        pods = [
            (pod if name in there or self._starts_s[int(name[1:])] > NEVER_S else pending)(
                name, node_name="n", creation_timestamp=created[name]
            )
            for name in created
        ]
        wanted = {"cpu": len(pods)}
        found = instances(
            InstanceInputs([HEAD, *pods], [HEAD_NODE, *nodes], TYPES, 9000.0 + now_s, wanted), self._timers
        )
        limits = assess_availability(
            found, TYPES, AvailabilityInputs(NOON + timedelta(seconds=now_s), 9000.0 + now_s, backoffs=self._backoffs)
        )
        gangs = () if self.placed_s is not None else (GANG,)
        question = SchedulingRequest(TYPES.types, found.instances, gangs=gangs, idle_timeout_s=30.0)
        choice = schedule_with_fallback(question, limits, schedule)
        self._timers, self._backoffs = found.timers, dict(limits.backoffs)
        for end in choice.reply.terminations:
            self.ended_s.append(now_s)
            self._created_s.pop(end.instance_id)
        for name in choice.withdrawn:
            self._created_s.pop(name, None)
        coming = Counter(i.node_type for i in choice.instances if i.status in COUNTABLE and not i.pod)
        for _ in range(coming["cpu"] + choice.reply.launches.get("cpu", 0)):
            self._created_s[f"w{self.made}"] = now_s
            self.made += 1


@pytest.mark.rule("SC:S5")
@pytest.mark.parametrize("seed", range(5))
def test_no_node_of_a_gang_is_terminated_while_the_others_start(seed):
    dice = random.Random(seed)
    slow = Slow([dice.uniform(20, 180) for _ in range(SIZE)])
    slow.run(200)
    assert slow.placed_s is not None
    assert slow.placed_s <= 200
    assert slow.made == SIZE
    assert all(ended_s > slow.placed_s for ended_s in slow.ended_s), "none before the gang was placed"


@pytest.mark.rule("SC:S5")
def test_after_its_release_all_are_gone_within_a_minute():
    slow = Slow([20.0] * SIZE)
    slow.run(100)
    assert (len(slow.ended_s), slow.made) == (SIZE, SIZE)


@pytest.mark.rule("SC:S5", "SC:S13")
def test_one_that_never_comes_costs_the_others_nothing():
    slow = Slow([20.0] * (SIZE - 1) + [10_000.0, 20.0])
    slow.run(420)
    assert slow.made == SIZE + 1, "the one that never came was replaced once"
    assert slow.placed_s is not None
    assert slow.placed_s <= 380
    assert all(ended_s > slow.placed_s for ended_s in slow.ended_s), "none before the gang was placed"
