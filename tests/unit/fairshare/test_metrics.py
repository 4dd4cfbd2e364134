"""Free capacity, and the part of it that fits no trainer."""

from raytide import metrics
from raytide.fairshare.algorithm.model import (
    Allocation,
    ClusterSnapshot,
    Node,
    Participant,
    ParticipantId,
    Resize,
    Shape,
)
from raytide.fairshare.metrics import expose, free_amounts, measure

GPU = "nvidia.com/gpu"


def node(name, *, is_usable=True, used=None, **amounts):
    return Node(name, {"cpu": 8000, "pods": 10, **amounts}, used=used or {}, is_usable=is_usable)


def participant(name, **requests):
    return Participant(
        id=ParticipantId("TrainingJob", "ns", name), floor=1, ceiling=2, current=1, shape=Shape(requests)
    )


def test_free_is_what_usable_nodes_have_left():
    free, _ = free_amounts(
        ClusterSnapshot((node("a", used={"cpu": 9000, "pods": 1}), node("b"), node("c", is_usable=False)), ())
    )
    assert free == {"cpu": 8000, "pods": 19}


def test_free_capacity_that_fits_no_trainer_is_fragmented():
    nodes = node("a", **{GPU: 2}), node("b", **{GPU: 4}), node("c", used={"cpu": 7500})
    four = participant("four", **{GPU: 4, "cpu": 1000, "pods": 1})
    _, fragmented = free_amounts(ClusterSnapshot(nodes, (four,)))
    assert fragmented == {GPU: 2, "cpu": 8000 + 500}, "two GPUs on a; CPUs that no trainer with GPUs can use"
    one = participant("one", cpu=500, pods=1)
    _, fragmented = free_amounts(ClusterSnapshot(nodes, (four, one)))
    assert fragmented == {GPU: 2, "cpu": 0}
    assert free_amounts(ClusterSnapshot(nodes, ()))[1] == {}, "no job requests anything"


def test_metrics_follow_the_last_pass():
    steps = metrics.POOL_PLAN_STEPS._value.get()
    one = participant("one", cpu=1000)
    grown = Allocation((Resize(one.id, 1, 3, "Growing", ""), Resize(one.id, 4, 2, "Reclaimed", "")))
    expose(measure(ClusterSnapshot((node("a", **{GPU: 1}),), (one,)), grown), 0.01)
    assert value("pool_free", GPU) == 1
    assert value("pool_fragmented", "cpu") == 0
    assert metrics.POOL_PLAN_STEPS._value.get() - steps == 4
    expose(measure(ClusterSnapshot((node("a"),), ()), Allocation()), 0.01)
    assert value("pool_free", GPU) is None, "a resource that is gone is not told any more"
    assert value("pool_free", "cpu") == 8000


def value(name: str, resource: str) -> float | None:
    return metrics.REGISTRY.get_sample_value(name, {"resource": resource})
