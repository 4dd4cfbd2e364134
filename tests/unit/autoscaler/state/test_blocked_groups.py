"""A blocked group in a simulated cluster: its tasks, pods and backoff, pass by pass."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from raytide.api.autoscaler_decision import Backoff
from raytide.api.conditions import timestamp
from raytide.api.pod import PodCondition, PodView
from raytide.autoscaler.model import (
    Demand,
    NodeStatus,
    NodeType,
    RayNode,
    Request,
    SchedulingRequest,
    Status,
    amounts_of,
)
from raytide.autoscaler.scheduling.fallback import schedule_with_fallback
from raytide.autoscaler.scheduling.schedule import schedule
from raytide.autoscaler.state.group_availability import AvailabilityInputs, assess_availability
from raytide.autoscaler.state.instance_lifecycle import Timers
from raytide.autoscaler.state.instances import instances
from raytide.autoscaler.state.node_types import NodeTypes
from raytide.autoscaler.state.observation import InstanceInputs
from raytide.diagnosis.model import Diagnosis
from support.builders import head, pending, pod, waiting

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CPU4 = amounts_of({"CPU": 4})
TICK_S = 5
TYPES = NodeTypes(
    (
        NodeType("headgroup", max_nodes=1),
        NodeType("spot", max_nodes=100, resources=CPU4, priority=10),
        NodeType("on-demand", max_nodes=20, resources=CPU4, priority=5),
    )
)
HEAD = head()
HEAD_NODE = RayNode("h1", NodeStatus.IDLE, HEAD.name, "headgroup")
REJECTED = {"diagnoses": [{"reason": "QuotaExceeded", "group": "spot", "message": "exceeded quota"}]}


@dataclass
class World:
    """Kubernetes, the operator and Ray as far as it matters; spot is blocked in one of several ways."""

    block: str
    work: int = 16
    start_s: int = 20
    now_s: int = 0
    made_at: dict[str, int] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    desired_hosts: Counter[str] = field(default_factory=Counter)
    backoffs: dict[str, Backoff] = field(default_factory=dict)
    reasons: dict[str, tuple[Diagnosis, ...]] = field(default_factory=dict)
    timers: Timers = field(default_factory=Timers)
    busy: set[str] = field(default_factory=set)
    most_pods: int = 0
    made: int = 0

    def group_of(self, name: str) -> str:
        return name.rpartition("-worker-")[0]

    def count(self, group: str) -> int:
        return sum(self.group_of(name) == group for name in self.made_at)

    def pod(self, name: str) -> PodView:
        fields: dict[str, Any] = {
            "group": self.group_of(name),
            "creation_timestamp": timestamp(NOON + timedelta(seconds=self.made_at[name])),
        }
        if name in self.running:
            return pod(name, **fields)
        if self.group_of(name) == "spot" and self.block == "image":
            return pending(name, node_name="n", containers=(waiting("ray", "ErrImagePull"),), **fields)
        if self.group_of(name) == "spot" and self.block:
            return pending(name, scheduled=PodCondition("False", self.block, "no"), **fields)
        return pending(name, **{**fields, "node_name": "n"})

    def node(self, name: str) -> RayNode:
        status = NodeStatus.RUNNING if name in self.busy else NodeStatus.IDLE
        available = () if name in self.busy else CPU4
        return RayNode(f"id-{name}", status, name, self.group_of(name), CPU4, available)

    def is_blocked(self, name: str) -> bool:
        return bool(self.block) and self.group_of(name) == "spot"

    def operate(self) -> None:
        """The operator makes pods, Kubernetes starts them, Ray takes work."""
        for group, count in self.desired_hosts.items():
            for _ in range(count - self.count(group)):
                if not (group == "spot" and self.block == "quota"):
                    self.made_at[f"{group}-worker-{self.made}"] = self.now_s
                    self.made += 1
        self.most_pods = max(self.most_pods, len(self.made_at))
        for name, at_s in self.made_at.items():
            if self.now_s - at_s >= self.start_s and not self.is_blocked(name):
                self.running.add(name)
        for name in sorted(self.running - self.busy)[: self.work - len(self.busy)]:
            self.busy.add(name)

    def tick(self) -> None:
        """One look and one decision, carried out at once."""
        found = instances(
            InstanceInputs(
                [HEAD, *(self.pod(name) for name in self.made_at)],
                [HEAD_NODE, *(self.node(name) for name in self.running)],
                TYPES,
                5000.0 + self.now_s,
                self.desired_hosts,
            ),
            self.timers,
        )
        status = REJECTED if self.block == "quota" else {}
        now = NOON + timedelta(seconds=self.now_s)
        limits = assess_availability(
            found, TYPES, AvailabilityInputs(now, 5000.0 + self.now_s, status, self.backoffs, self.reasons)
        )
        waiting_work = self.work - len(self.busy)
        tasks = (Demand(Request(CPU4), waiting_work),) if waiting_work else ()
        choice = schedule_with_fallback(SchedulingRequest(TYPES.types, found.instances, tasks), limits, schedule)
        for name in choice.withdrawn & self.made_at.keys():
            assert name not in self.busy, "a busy worker is never withdrawn"
            del self.made_at[name]
        alive = (Status.RAY_RUNNING, Status.ALLOCATED, Status.REQUESTED, Status.QUEUED)
        self.desired_hosts = Counter(i.node_type for i in choice.instances if i.status in alive and not i.is_head)
        self.desired_hosts += Counter(choice.reply.launches)
        self.timers, self.backoffs = found.timers, dict(limits.backoffs)
        self.reasons = {name: (b.diagnosis,) for name, b in limits.blocked.items()}

    def run(self, until_s: int, *, restart_every_s: int = 0) -> None:
        while self.now_s < until_s:
            self.operate()
            if restart_every_s and self.now_s % restart_every_s == 0:
                self.timers = Timers()
            self.tick()
            self.operate()
            self.now_s += TICK_S


@pytest.mark.rule("SC:S2")
@pytest.mark.parametrize("block", ["Unschedulable", "SchedulingGated", "quota"])
def test_a_blocked_groups_work_is_elsewhere_within_30_s(block):
    world = World(block)
    world.run(30)
    assert (world.count("on-demand"), world.count("spot")) == (16, 0)
    assert world.most_pods <= 16 + 16
    world.run(900)
    assert (len(world.busy), world.count("spot")) == (16, 0)
    assert world.most_pods <= 16 + 16


@pytest.mark.rule("SC:S2")
def test_after_capacity_is_back_no_busy_worker_is_swapped():
    world = World("Unschedulable")
    world.run(100)
    busy = set(world.busy)
    world.block = ""
    world.run(1000)
    assert (world.busy, world.count("spot")) == (busy, 0)


@pytest.mark.rule("SC:S13")
def test_tasks_of_a_group_whose_image_cannot_be_pulled_run_in_another_group():
    world = World("image")
    world.run(340)
    assert (world.count("on-demand"), world.count("spot"), len(world.busy)) == (16, 0, 16)
    assert world.most_pods <= 16 + 16


def test_new_work_tries_the_blocked_group_only_when_it_has_no_other_place_and_with_one_pod():
    world = World("Unschedulable", work=4)
    world.run(100)
    assert (world.count("on-demand"), world.count("spot")) == (4, 0)
    world.work = 20
    world.run(105)
    assert (world.count("on-demand"), world.count("spot")) == (20, 0)
    world.work = 25
    world.run(110)
    assert (world.count("on-demand"), world.count("spot")) == (20, 1)


@pytest.mark.rule("AS:S-23")
def test_when_the_failure_is_long_ago_the_group_of_higher_priority_is_tried_first():
    world = World("Unschedulable", work=4)
    world.run(620)
    world.work = 8
    world.run(625)
    assert (world.count("on-demand"), world.count("spot")) == (7, 1)


def test_a_group_that_has_capacity_again_is_used_in_full_once_its_first_worker_registers():
    world = World("Unschedulable", work=20)
    world.run(60)
    world.block = ""
    world.work = 60
    world.run(200)
    assert (len(world.busy), world.backoffs) == (60, {})
    assert world.count("on-demand") == 20


def test_a_group_alone_waits_for_capacity_with_all_its_pods():
    world = World("Unschedulable", work=120)
    world.run(600)
    assert (world.count("on-demand"), world.count("spot")) == (20, 100)
    pods = set(world.made_at)
    world.block = ""
    world.run(700)
    assert (set(world.made_at), len(world.busy)) == (pods, 120)


@pytest.mark.rule("D12")
@pytest.mark.parametrize("restart_every_s", [15, 35])
@pytest.mark.parametrize("block", ["Unschedulable", "quota"])
def test_restarts_at_any_moment_neither_break_nor_repeat_anything(block, restart_every_s):
    world = World(block)
    world.run(20)
    world.run(600, restart_every_s=restart_every_s)
    assert (len(world.busy), world.count("spot")) == (16, 0)
    assert world.most_pods <= 16 + 16
