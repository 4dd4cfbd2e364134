"""Events of a node autoscaler: which of them count, how long a pod may wait, and that no pod is created twice."""

import asyncio
import random

import pytest

from raytide.api.pod import PodCondition
from raytide.autoscaler.provider.node_events import NodeEvents
from raytide.autoscaler.sidecar.settings import SettingError, read_settings
from raytide.autoscaler.state.instance_lifecycle import TimeLimits
from raytide.autoscaler.state.node_autoscaler_events import (
    UNKNOWN,
    NodeAutoscaler,
    PodEvent,
    Presence,
    latest_scale_ups,
    unschedulable_timeout_s,
)
from raytide.kube.client import Client
from support.builders import group, pending
from support.faults.types import Answer
from unit.autoscaler.simulated_cluster import EPOCH, World

from simulation.in_process_transport import InProcessTransport
from simulation.operator_under_test import SimulatedClock
from simulation.simulated_kube import SimulatedKube

NO_NODE = PodCondition("False", "Unschedulable", "0/3 nodes are available")
READABLE = NodeAutoscaler(can_list_events=True)


def cloud(**known: object) -> World:
    """Spot is preferred; every machine comes after 90 s."""
    groups = [
        group("spot", replicas=0, high=8, priority=10),
        group("on-demand", replicas=0, high=8, priority=5),
    ]
    world = World(groups, start_s=5, machine_s={"spot": 90, "on-demand": 90})
    world.node_autoscaler = NodeAutoscaler(**known)  # type: ignore[arg-type]
    return world


@pytest.mark.rule("FD:AS-A2")
@pytest.mark.parametrize(
    "known",
    [{"can_list_events": True}, {"can_list_events": True, "has_sent_events": True}, {"presence": Presence.PRESENT}],
    ids=["its first event", "seen before", "by the setting"],
)
def test_pods_wait_for_their_machines_and_no_pod_is_created_twice(known):
    world = cloud(**known)
    world.demand(8)
    world.run(110)
    assert (len(world.created), len(world.live("spot")), world.deleted, world.waiting()) == (8, 8, [], 0)


@pytest.mark.rule("FD:AS-A2", "SC:S2")
def test_a_not_triggered_scale_up_event_blocks_the_group_at_once():
    world = cloud(can_list_events=True)
    world.blocked.add("spot")
    world.demand(8)
    world.run(20)
    assert (len(world.live("spot")), len(world.live("on-demand"))) == (0, 8)
    world.run(100)
    assert world.waiting() == 0


@pytest.mark.rule("SC:S2")
@pytest.mark.parametrize("known", [UNKNOWN, READABLE], ids=["events cannot be read", "there are no events"])
def test_without_a_node_autoscaler_another_group_runs_the_tasks_within_30_s(known):
    world = cloud()
    world.machine_s, world.node_autoscaler = {}, known
    world.blocked.add("spot")
    world.demand(8)
    world.run_until(lambda: len(world.live("on-demand")) == 8, 30)
    assert world.live("spot") == []


@pytest.mark.parametrize(
    ("known", "seconds"),
    [
        pytest.param(UNKNOWN, 8, id="nothing can be read"),
        pytest.param(READABLE, 15, id="no event yet"),
        pytest.param(
            NodeAutoscaler(can_list_events=True, has_sent_events=True), 900, id="it works, and has said nothing of this"
        ),
        pytest.param(
            NodeAutoscaler(can_list_events=True, has_sent_events=True, scale_up_by_pod={"a": True}),
            900,
            id="a node comes",
        ),
        pytest.param(
            NodeAutoscaler(can_list_events=True, has_sent_events=True, scale_up_by_pod={"a": False}),
            -1,
            id="none comes",
        ),
        pytest.param(NodeAutoscaler(Presence.PRESENT), 900, id="the setting is present"),
        pytest.param(
            NodeAutoscaler(Presence.ABSENT, has_sent_events=True, scale_up_by_pod={"a": True}), 8, id="or says no"
        ),
    ],
)
def test_how_long_a_pod_waits_for_a_node(known, seconds):
    assert unschedulable_timeout_s("a", known, TimeLimits()) == seconds


@pytest.mark.parametrize(
    ("known", "seconds"),
    [
        pytest.param(UNKNOWN, -1, id="nothing can be read"),
        pytest.param(NodeAutoscaler(Presence.ABSENT), -1, id="the setting is absent"),
        pytest.param(NodeAutoscaler(can_list_events=True, has_sent_events=True), 15, id="its own answer is waited for"),
        pytest.param(
            NodeAutoscaler(can_list_events=True, has_sent_events=True, scale_up_by_pod={"a": True}),
            900,
            id="a node comes",
        ),
    ],
)
def test_how_long_a_pod_of_a_group_without_nodes_waits(known, seconds):
    assert unschedulable_timeout_s("a", known, TimeLimits(), is_in_backoff=True) == seconds


def test_the_latest_event_about_the_current_pod_counts():
    pods = [pending("a"), pending("b"), pending("c")]
    events = [
        PodEvent("a", "uid-a", "NotTriggerScaleUp", EPOCH.replace(hour=2)),
        PodEvent("a", "uid-a", "TriggeredScaleUp", EPOCH.replace(hour=1)),
        PodEvent("b", "", "Nominated", EPOCH),
        PodEvent("c", "another", "TriggeredScaleUp", EPOCH),
        PodEvent("c", "uid-c", "ScaleDown", EPOCH),
        PodEvent("gone", "", "Nominated", EPOCH),
    ]
    assert latest_scale_ups(events, pods) == {"a": False, "b": True}


def test_a_setting_that_cannot_be_meant_is_named():
    assert read_settings({}).node_autoscaler is Presence.AUTO
    assert read_settings({"RAYTIDE_AUTOSCALER_NODE_AUTOSCALER": "Present"}).node_autoscaler is Presence.PRESENT
    with pytest.raises(SettingError, match="auto, present, absent"):
        read_settings({"RAYTIDE_AUTOSCALER_NODE_AUTOSCALER": "maybe"})


# --- how its events are read -----------------------------------------------------------------------------------------


class EventSource:
    """An API with events, and the number of its lists."""

    def __init__(self, presence: Presence = Presence.AUTO) -> None:
        self.plane = SimulatedKube(random.Random(0))
        self.wire = InProcessTransport(self.plane.api, lag_s=lambda: 0.0)
        self.asked = 0
        self.status_error: Answer | None = None
        self.wire.admission = self._count
        clock = SimulatedClock(self.plane.now)
        self.events = NodeEvents(Client(self.wire, clock=clock), "default", clock=clock, presence=presence)

    def _count(self, _request: object) -> Answer | None:
        self.asked += 1
        return self.status_error

    def report(self, pod: str, reason: str, source: str = "cluster-autoscaler") -> None:
        obj = {
            "metadata": {"name": f"{pod}.{reason}", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": pod, "uid": f"uid-{pod}", "namespace": "default"},
            "reason": reason,
            "source": {"component": source},
            "lastTimestamp": self.plane.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        self.plane.store.create("events", obj)

    async def look(self, *names: str) -> NodeAutoscaler:
        return await self.events.refresh([pending(name, scheduled=NO_NODE) for name in names])


@pytest.mark.looptime
@pytest.mark.rule("FD:AS-A2")
@pytest.mark.parametrize(
    ("reason", "source", "answer"),
    [
        ("TriggeredScaleUp", "cluster-autoscaler", True),
        ("NotTriggerScaleUp", "cluster-autoscaler", False),
        ("Nominated", "karpenter", True),
        ("FailedScheduling", "karpenter", False),
        ("FailedScheduling", "default-scheduler", None),
    ],
)
async def test_events_of_node_autoscalers_are_read_and_no_others(reason, source, answer):
    event_source = EventSource()
    assert (await event_source.look("a")) == READABLE.__class__(can_list_events=True, scale_up_by_pod={})
    event_source.report("a", reason, source)
    await asyncio.sleep(5)
    found = await event_source.look("a")
    assert (found.scales_up_for("a"), found.has_sent_events) == (answer, answer is not None)


@pytest.mark.looptime
@pytest.mark.rule("FD:AS-A2", "SC:S17")
async def test_events_are_listed_only_while_pods_are_pending_and_rarely():
    event_source = EventSource()
    await event_source.events.refresh([pending("a"), pending("b", node_name="n")])
    assert event_source.asked == 0
    for _ in range(60):
        await event_source.look("a")
        await asyncio.sleep(1)
    assert event_source.asked <= 2 * 31
    event_source.report("a", "Nominated", "karpenter")
    await asyncio.sleep(5)
    event_source.asked = 0
    for _ in range(60):
        await event_source.look("a")
        await asyncio.sleep(1)
    assert event_source.asked <= 6, "one source, every 20 s"


@pytest.mark.looptime
@pytest.mark.rule("FD:AS-A2", "SC:S17")
async def test_a_pod_pending_without_a_node_autoscaler_costs_few_lists_and_hides_no_newer_pod():
    event_source = EventSource()
    for _ in range(60):
        await event_source.look("a")
        await asyncio.sleep(1)
    event_source.asked = 0
    for _ in range(60):
        await event_source.look("a")
        await asyncio.sleep(1)
    assert event_source.asked <= 2 * 4, "two sources, every 20 s"
    assert event_source.events.requeue_after_s is None
    await event_source.look("a", "b")
    event_source.report("b", "TriggeredScaleUp")
    await asyncio.sleep(3)
    assert (await event_source.look("a", "b")).scales_up_for("b") is True


@pytest.mark.looptime
@pytest.mark.rule("FD:AS-A2")
async def test_with_the_setting_absent_no_events_are_listed():
    event_source = EventSource(Presence.ABSENT)
    await event_source.look("a")
    assert event_source.asked == 0
    assert event_source.events.requeue_after_s is None


@pytest.mark.looptime
@pytest.mark.rule("FD:AS-A2")
async def test_without_permission_events_are_listed_every_ten_minutes_and_the_setting_applies():
    event_source = EventSource(Presence.PRESENT)
    event_source.status_error = Answer(403, message="events is forbidden")
    for _ in range(60):
        found = await event_source.look("a")
        await asyncio.sleep(5)
    assert (event_source.asked, found.can_list_events, found.is_active) == (1, False, True)
    assert (await EventSource(Presence.ABSENT).look("a")).scale_up_by_pod is None
