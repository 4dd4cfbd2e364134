"""Startup steps of a pod, their time limits, and that slow pods are not given up."""

from datetime import UTC, datetime

import pytest

from raytide.api.pod import ContainerView, PodCondition
from raytide.autoscaler.model import NodeStatus, NodeType, RayNode
from raytide.autoscaler.sidecar.settings import read_settings
from raytide.autoscaler.state.group_availability import AvailabilityInputs, assess_availability
from raytide.autoscaler.state.instance_lifecycle import TimeLimits, Timers
from raytide.autoscaler.state.instances import instances
from raytide.autoscaler.state.node_types import NodeTypes
from raytide.autoscaler.state.observation import InstanceInputs
from raytide.autoscaler.state.pod_startup import limit_s, restart_count, startup_of
from support.builders import group, head, pending, pod, waiting
from unit.autoscaler.simulated_cluster import World

INIT = ContainerView("wait-gcs-ready", "running")
DONE = ContainerView("wait-gcs-ready", "terminated", "Completed", exit_code=0)
PULLING = waiting("ray-worker", "ContainerCreating")
RUNS = ContainerView("ray-worker", "running")


@pytest.mark.rule("FD:AS-A1")
@pytest.mark.parametrize(
    ("thing", "reason", "seconds"),
    [
        pytest.param(pending("a"), "NotScheduled", 120, id="no scheduler"),
        pytest.param(pending("a", scheduled=PodCondition("False", "SchedulingGated")), "SchedulingGated", 8, id="gate"),
        pytest.param(pending("a", scheduled=PodCondition("False", "Unschedulable")), "Unschedulable", 8, id="no node"),
        pytest.param(pending("a", node_name="n"), "ContainersNotStarted", 3600, id="no status yet"),
        pytest.param(
            pending("a", node_name="n", init_containers=(INIT,)), "NotInitialized", 3600, id="an init container"
        ),
        pytest.param(
            pending("a", node_name="n", init_containers=(DONE,), containers=(PULLING,)),
            "ContainersNotStarted",
            3600,
            id="pulling",
        ),
        pytest.param(
            pending("a", node_name="n", containers=(waiting("ray-worker", "ImagePullBackOff"),)),
            "ImagePullFailed",
            300,
            id="no image",
        ),
        pytest.param(
            pod("a", containers=(ContainerView("ray-worker", "running", restart_count=2),)),
            "CrashLoop",
            300,
            id="between two crashes",
        ),
        pytest.param(pod("a", containers=(RUNS,)), "NeverRegistered", 300, id="Ray runs"),
        pytest.param(
            pending("a", node_name="n", containers=(RUNS, waiting("logs", "ContainerCreating"))),
            "NeverRegistered",
            300,
            id="Ray runs, another container is pulled",
        ),
        pytest.param(
            pod("a", containers=(PULLING, ContainerView("logs", "running"))),
            "ContainersNotStarted",
            3600,
            id="another container runs, Ray's is pulled",
        ),
    ],
)
def test_each_startup_step_has_its_own_time_limit(thing, reason, seconds):
    startup = startup_of(thing, is_crash_loop=restart_count(thing) > 1)
    assert (startup.reason, limit_s(startup, TimeLimits())) == (reason, seconds)


@pytest.mark.rule("FD:AS-A1")
def test_a_finished_init_container_is_progress_and_a_restart_is_not():
    first = startup_of(pending("a", node_name="n", init_containers=(INIT, waiting("second", "PodInitializing"))))
    second = startup_of(pending("a", node_name="n", init_containers=(DONE, ContainerView("second", "running"))))
    assert first.step != second.step
    crashes = [ContainerView("ray-worker", state, restart_count=1) for state in ("running", "terminated")]
    crashes.append(ContainerView("ray-worker", "waiting", "CrashLoopBackOff", restart_count=2))
    assert len({startup_of(pod("a", containers=(each,))).step for each in crashes}) == 1


SIDECAR = ContainerView("proxy", "running", is_sidecar=True, has_started=True)
"""A native sidecar: an init container that is always restarted."""
PROXY = ContainerView("proxy", "running", restart_count=1, is_sidecar=True, has_started=True)
UNSTARTED = ContainerView("proxy", "running", is_sidecar=True)
"""A sidecar whose startup probe has not succeeded yet."""


@pytest.mark.rule("FD:AS-A1", "SC:S13")
@pytest.mark.parametrize(
    ("containers", "reason", "detail"),
    [
        ((SIDECAR, DONE), "ContainersNotStarted", "its images are being pulled or its volumes mounted"),
        ((PROXY, DONE), "ContainersNotStarted", "its images are being pulled or its volumes mounted"),
        ((SIDECAR, INIT), "NotInitialized", "init container wait-gcs-ready has not completed"),
        ((UNSTARTED, DONE), "NotInitialized", "sidecar container proxy has not started"),
    ],
    ids=["a sidecar that runs", "a sidecar that was restarted", "an init container after it", "a sidecar to start"],
)
def test_a_native_sidecar_is_waited_for_only_until_it_has_started(containers, reason, detail):
    startup = startup_of(pending("a", node_name="n", init_containers=containers, containers=(PULLING,)))
    assert (startup.reason, startup.diagnosis.message) == (reason, detail)


@pytest.mark.rule("FD:AS-A1")
def test_a_started_sidecar_is_progress_and_its_restart_is_not():
    one, two, again = (
        startup_of(pending("a", node_name="n", init_containers=(proxy, INIT))) for proxy in (UNSTARTED, SIDECAR, PROXY)
    )
    assert one.step != two.step == again.step


@pytest.mark.rule("FD:AS-A1")
def test_a_sidecar_that_is_restarted_again_is_still_a_crash_loop():
    proxy = ContainerView("proxy", "running", restart_count=3, is_sidecar=True, has_started=True)
    assert restart_count(pending("a", node_name="n", init_containers=(proxy, DONE))) == 3


@pytest.mark.rule("FD:AS-A1")
@pytest.mark.parametrize("start_s", [400, 700, 1800])
def test_slow_starters_start(start_s):
    world = World([group("cpu", replicas=0, maxReplicas=10)], start_s=start_s)
    world.demand(4)
    world.run(start_s + 30)
    assert (len(world.created), world.deleted, world.waiting()) == (4, [], 0)


@pytest.mark.rule("FD:AS-A1")
@pytest.mark.parametrize(
    ("variable", "limit"),
    [
        ("RAYTIDE_AUTOSCALER_UNSCHEDULABLE_TIMEOUT_S", "capacity_s"),
        ("RAYTIDE_AUTOSCALER_NODE_TIMEOUT_S", "node_s"),
        ("RAYTIDE_AUTOSCALER_SCHEDULE_TIMEOUT_S", "schedule_s"),
        ("RAYTIDE_AUTOSCALER_PULL_TIMEOUT_S", "pull_s"),
        ("RAYTIDE_AUTOSCALER_INIT_TIMEOUT_S", "initialize_s"),
        ("RAYTIDE_AUTOSCALER_BROKEN_TIMEOUT_S", "broken_s"),
        ("RAYTIDE_AUTOSCALER_REGISTER_TIMEOUT_S", "register_s"),
    ],
)
def test_every_time_limit_can_be_set(variable, limit):
    assert getattr(read_settings({variable: "77"}).time_limits, limit) == 77


# --- restarts ------------------------------------------------------------------------------------------------------------

AGENT = ContainerView("log-agent", "running", restart_count=1)


@pytest.mark.rule("FD:AS-A1", "SC:S13")
@pytest.mark.parametrize(
    ("thing", "reason", "seconds"),
    [
        pytest.param(
            pod("a", containers=(PULLING, AGENT)), "ContainersNotStarted", 3600, id="another container, Ray's is pulled"
        ),
        pytest.param(
            pending("a", node_name="n", init_containers=(PROXY, INIT)), "NotInitialized", 3600, id="a native sidecar"
        ),
        pytest.param(
            pending("a", node_name="n", init_containers=(ContainerView("wait", "running", restart_count=1),)),
            "NotInitialized",
            3600,
            id="an init container",
        ),
        pytest.param(
            pod("a", containers=(RUNS, AGENT)), "NeverRegistered", 300, id="another container in addition to Ray"
        ),
        pytest.param(
            pod("a", containers=(ContainerView("ray-worker", "running", restart_count=1),)),
            "NeverRegistered",
            300,
            id="Ray's, and it runs",
        ),
        pytest.param(
            pod("a", containers=(ContainerView("ray-worker", "terminated", "Error", restart_count=1, exit_code=1),)),
            "NeverRegistered",
            300,
            id="Ray's, and it is about to be started",
        ),
        pytest.param(
            pod("a", containers=(PULLING, waiting("log-agent", "CrashLoopBackOff"))),
            "CrashLoop",
            300,
            id="one that waits to be restarted",
        ),
    ],
)
def test_a_container_that_was_restarted_once_is_no_crash_loop(thing, reason, seconds):
    startup = startup_of(thing, is_crash_loop=restart_count(thing) > 1)
    assert (startup.reason, limit_s(startup, TimeLimits())) == (reason, seconds)


HEAD_NODE = RayNode("h", NodeStatus.IDLE, head().name, "headgroup")
TYPES = NodeTypes((NodeType("headgroup", max_nodes=1), NodeType("cpu", max_nodes=5)))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def given_up_after_s(states, until_s):
    """When the pod is given up, if its containers have `states` from these seconds on; None: never."""
    timers, shown = Timers(), ()
    for second in range(0, until_s, 5):
        shown = states.get(second, shown)
        view = pod("a", phase="Pending", node_name="n", containers=shown)
        found = instances(InstanceInputs([head(), view], [HEAD_NODE], TYPES, float(second), {"cpu": 1}), timers)
        timers = found.timers
        if assess_availability(found, TYPES, AvailabilityInputs(NOW, float(second))).stuck:
            return second
    return None


def restarted(count, name="log-agent"):
    return (PULLING, ContainerView(name, "running", restart_count=count))


def backing_off(count):
    return (PULLING, ContainerView("log-agent", "waiting", "CrashLoopBackOff", restart_count=count))


BACKING_OFF = backing_off(1)
HISTORIES = {
    "restarted once, and the image takes long": ({0: (PULLING,), 60: restarted(1)}, None),
    "restarted twice, with half an hour between": ({0: restarted(0), 60: restarted(1), 1860: restarted(2)}, None),
    "restarted twice at once, and then it runs": ({0: restarted(0), 60: restarted(1), 80: restarted(2)}, None),
    "back-off once, and then it runs": ({0: restarted(1), 60: BACKING_OFF, 70: restarted(2)}, None),
    "already restarted when first seen, and it runs": ({0: restarted(7)}, None),
    "it waits to be restarted": ({0: (PULLING,), 60: BACKING_OFF}, 365),
    "it crashes again and again, and runs in between": (
        {second: restarted(1 + second // 100) for second in range(0, 3000, 100)},
        505,
    ),
    "it crashes every 280 s": ({second: restarted(second // 280) for second in range(0, 3000, 280)}, 1120),
    "it crashes every 280 s, and waits to be restarted": (
        {
            second: shown
            for period in range(280, 3000, 280)
            for second, shown in ((period - 20, backing_off(period // 280 - 1)), (period, restarted(period // 280)))
        },
        820,
    ),
    "it crashes every 310 s": ({second: restarted(second // 310) for second in range(0, 3000, 310)}, None),
    "Ray starts again and again": (
        {
            second: (ContainerView("ray-worker", "running", restart_count=second // 200),)
            for second in range(0, 3000, 200)
        },
        505,
    ),
}
"""What its containers do from which second on, and when it is given up."""


@pytest.mark.rule("FD:AS-A1", "SC:S13")
@pytest.mark.parametrize("history", HISTORIES)
def test_only_containers_that_restart_again_within_the_time_limit_are_given_up(history):
    states, expected = HISTORIES[history]
    assert given_up_after_s(states, 3000) == expected
