"""Properties of a job after random histories with crashes of the operator."""

from hypothesis import given, settings
from hypothesis import strategies as st

from raytide.api import trainingjob_constants as constants
from support.job_world import JobWorld

MOST = 6
INDEX = st.integers(0, MOST - 1)
HAPPENING = st.one_of(
    st.tuples(st.just("fails"), INDEX),
    st.tuples(st.just("is taken"), INDEX),
    st.tuples(st.just("is deleted"), INDEX),
    st.tuples(st.just("starts"), INDEX),
    st.tuples(st.just("resize"), st.integers(1, MOST)),
    st.tuples(st.just("time"), st.sampled_from([1, 10, 400])),
    st.tuples(st.just("gone"), st.just(0)),
    st.tuples(st.just("pass"), st.just(0)),
    st.tuples(st.just("crash"), st.just(0)),
)


class Scenario:
    """A job with a history of events, and its number of failures."""

    def __init__(self) -> None:
        self.world = JobWorld(low=1, high=MOST, backoffLimit=10_000, pserver={"min-instance": 1})
        self.failures = 0

    def apply_event(self, what: str, number: int) -> None:
        world = self.world
        match what:
            case "resize":
                world.resize(number)
            case "time":
                world.pass_time(number)
            case "gone":
                world.let_go()
            case "pass":
                world.reconcile()
            case "crash":
                world.reconcile(crash_before_status=True)
            case _:
                self._of_trainer(what, number)

    def _of_trainer(self, what: str, index: int) -> None:
        world, short = self.world, f"trainer-{index}"
        if index not in world.trainers:
            return
        match what:
            case "fails":
                world.end(short, 1)
                self.failures += 1
            case "is taken":
                world.end(short, 137, reason="Evicted")
            case "is deleted":
                world.pod(short, deletion_timestamp="2026-01-01T00:00:00Z")
            case "starts":
                world.pod(short, phase="Running")

    def calm_down(self) -> JobWorld:
        """Nothing happens any more, and everything may finish."""
        for _ in range(4):
            self.world.settle()
            self.world.pass_time(400)
            self.world.settle()
            self.world.let_go()
            self.world.run()
        return self.world


@settings(max_examples=150, deadline=None)
@given(st.lists(HAPPENING, max_size=25))
def test_every_failure_counts_once_and_the_job_gets_the_size_it_has_to_have(happenings):
    scenario = Scenario()
    scenario.world.run()
    for what, number in happenings:
        scenario.apply_event(what, number)
        assert len(scenario.world.trainers) <= MOST
    world = scenario.calm_down()
    assert world.status["trainer"]["failed"] == scenario.failures
    assert len(world.trainers) == world.job.desired_replicas()
    assert 0 in world.trainers
    assert world.plan().actions == ()
    assert world.phase == constants.PHASE_RUNNING
    assert world.status.get("failures", {}).get("counted", []) == []


@settings(max_examples=100, deadline=None)
@given(st.lists(HAPPENING, max_size=25), st.lists(HAPPENING, max_size=10))
def test_a_plan_is_the_same_for_the_same_and_never_beyond_the_size(before, after):
    scenario = Scenario()
    scenario.world.run()
    for what, number in before:
        scenario.apply_event(what, number)
    assert scenario.world.plan() == scenario.world.plan()
    for what, number in after:
        scenario.apply_event(what, number)
        scenario.world.settle()
        here = [pod for pod in scenario.world.pods.values() if pod.role == constants.TRAINER and not pod.is_terminating]
        alive = [pod for pod in here if not pod.is_finished]
        assert len(alive) <= scenario.world.job.desired_replicas()
