"""A pod on its way to a Ray node: which step it is in, how long that may last, and that slow ones are not given up."""

import pytest

from raytide.api.pod import ContainerView, PodCondition
from raytide.autoscaler.inputs.lifecycle import TimeLimits
from raytide.autoscaler.inputs.startup import limit_s, startup_of
from unit.autoscaler.scaling_world import World

from builders import group, pending, pod, waiting

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
        pytest.param(pending("a", node_name="n"), "ContainersNotStarted", 3600, id="nothing is said yet"),
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
def test_each_step_has_its_own_patience(thing, reason, seconds):
    startup = startup_of(thing)
    assert (startup.reason, limit_s(startup, TimeLimits())) == (reason, seconds)


@pytest.mark.rule("FD:AS-A1")
def test_an_init_container_that_finishes_is_progress_and_a_restart_is_none():
    first = startup_of(pending("a", node_name="n", init_containers=(INIT, waiting("second", "PodInitializing"))))
    second = startup_of(pending("a", node_name="n", init_containers=(DONE, ContainerView("second", "running"))))
    assert first.step != second.step
    crashes = [ContainerView("ray-worker", state, restart_count=1) for state in ("running", "terminated")]
    crashes.append(ContainerView("ray-worker", "waiting", "CrashLoopBackOff", restart_count=2))
    assert len({startup_of(pod("a", containers=(each,))).step for each in crashes}) == 1


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
def test_every_patience_can_be_set(variable, limit):
    assert getattr(TimeLimits.from_environment({variable: "77"}), limit) == 77
