"""Numbers beyond the limits are cut."""

import time
import tracemalloc

import pytest

from raytide.api.actions import MAX_WRITES, Create
from raytide.api.index_ranges import MOST, indices_in
from raytide.api.limits import MAX_INSTANCES, MAX_PORTS
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import INVALID_SPEC
from support.job_world import JobWorld
from support.training_builders import trainingjob

HUGE = 2_147_483_647
BOUNDS = {"min-instance": HUGE, "max-instance": HUGE}
HOSTILE = {
    "two thousand million parameter servers": ({"pserver": BOUNDS}, "spec.pserver.min-instance"),
    "two thousand million trainers": ({"trainer": BOUNDS}, "spec.trainer.min-instance"),
    "two thousand million trainers ordered by kubectl scale": (
        {"trainer": {"replicas": HUGE}},
        "spec.trainer.replicas",
    ),
    "a maximum of two thousand million": ({"trainer": {"max-instance": HUGE}}, "spec.trainer.max-instance"),
    "5,000 ports": ({"ports_num": 5_000}, "spec.ports_num"),
    "20,000 ports": ({"portsNum": 20_000, "trainer": {"min-instance": 600, "max-instance": 600}}, "spec.ports_num"),
    "20,000 sparse ports": ({"ports_num_for_sparse": 20_000}, "spec.ports_num_for_sparse"),
    "trainers, servers and ports at once": (
        {"trainer": BOUNDS, "pserver": BOUNDS, "ports_num": 20_000},
        "spec.pserver.min-instance",
    ),
}


@pytest.mark.rule("FD:SEC-F1")
@pytest.mark.parametrize(("spec", "field"), HOSTILE.values(), ids=HOSTILE)
def test_a_number_above_its_limit_counts_as_the_limit_and_is_reported(spec, field):
    world = JobWorld(**spec)
    tracemalloc.start()
    began = time.process_time()
    for _ in range(4):
        world.reconcile()
    spent = time.process_time() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    notes = [note for reason, note in world.events if reason == INVALID_SPEC and note.startswith(f"{field} ")]
    assert notes
    assert all("above the limit of" in note and "set" in note for note in notes)
    assert peak < 100_000_000
    assert spent < 20  # traced, and on a busy machine: before, it never ended


@pytest.mark.rule("FD:SEC-F1")
def test_a_job_at_the_limits_is_not_cut():
    job = TrainingJob.parse(trainingjob(low=MAX_INSTANCES, high=MAX_INSTANCES, ports_num=MAX_PORTS))
    assert job.clamped == ()
    assert (job.spec.trainer.ceiling, job.spec.ports_num) == (MAX_INSTANCES, MAX_PORTS)


@pytest.mark.rule("FD:SEC-F1")
def test_a_plan_has_at_most_the_creates_of_one_pass_and_the_next_continues():
    world = JobWorld(low=1_200, high=1_200)
    world.reconcile()  # service and membership
    todo = world.reconcile()
    assert len([each for each in todo.actions if isinstance(each, Create)]) == MAX_WRITES
    assert todo.is_continued
    while len(world.trainers) < 1_200:
        assert world.reconcile().actions


@pytest.mark.rule("FD:SEC-F1")
def test_a_status_that_names_the_same_million_indices_again_and_again_is_read_in_a_moment():
    began = time.process_time()
    found = indices_in(",".join(["0-99999"] * 10_000))
    assert len(found) <= MOST + 1
    assert time.process_time() - began < 2


@pytest.mark.rule("FD:SEC-F1")
def test_large_pods_are_built_a_few_at_a_time():
    world = JobWorld(low=600, high=600, trainer={"env": [{"name": f"A{n}", "value": "1"} for n in range(20_000)]})
    world.reconcile()  # service and membership
    todo = world.reconcile()
    assert 1 <= len([each for each in todo.actions if isinstance(each, Create)]) <= 5
    assert todo.is_continued
