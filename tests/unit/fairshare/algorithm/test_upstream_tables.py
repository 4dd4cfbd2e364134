"""The assertions of EDL's own unit tests, applied to Raytide's planner: TJ §2.6, row by row.

A row is a cluster (used/total of CPU, memory, GPU; one node, as upstream's), one job and a load. Upstream asks for single
steps; `allocate` gives the whole plan, so where upstream says "+1 per step" the row has the sum of the steps. Rows that we
answer differently on purpose have `CHANGED` in their sentence and say which reading of TJ §3 it is. Not asked here:
`New` and `Monitor` (a Go constructor and its ticker; there is nothing like them). TrainerRequestLimit, NeedGPU and
AddResourceList are about reading quantities: at the end of this file, of the code that reads them.
"""

from dataclasses import replace
from fractions import Fraction

import pytest

from raytide.api.config import DEFAULT_GPUS
from raytide.api.pod_requirements import CPU, PODS, pod_shape
from raytide.api.training_resources import is_gpu_job
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_constants import TRAINER
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import MEMORY, AllocationOptions, ClusterSnapshot, Node, Participant
from raytide.fairshare.pod_requirements import role_shape
from support.elastic_builders import GPU, id_of, job, resizes_of, shape
from support.training_builders import trainingjob

pytestmark = pytest.mark.rule("TJ:2.6")

MEGA = 10**6
MI = 1 << 20


def cluster(cpu: tuple[int, int], memory: tuple[int, int], gpu: tuple[int, int] = (0, 0)) -> Node:
    """Used and total as upstream writes them: thousandths of CPU, megabytes, GPUs."""
    used = {CPU: cpu[0], MEMORY: memory[0] * MEGA, GPU: gpu[0]}
    return Node("node", {CPU: cpu[1], MEMORY: memory[1] * MEGA, GPU: gpu[1], PODS: 1000}, used)


def plan_of(there: Node, one: Participant, *, load: float = 1.0) -> int:
    """By how much the job grows or shrinks; the load counts for every resource, as upstream's flag did."""
    options = AllocationOptions(max_load_percent={name: round(load * 100) for name in (CPU, MEMORY, GPU)})
    there = replace(there, charged=there.used)
    pool = ClusterSnapshot((there,), (one,), options=options)
    return resizes_of(allocate(pool)).get(one.id.name, 0)


def trainer(memory: int, gpu: int, floor: int, ceiling: int, current: int, *, cpu: float = 1) -> Participant:
    placed = {"node": current} if current else {}
    return job("job", floor, ceiling, current, cpu=cpu, memory=memory, gpu=gpu, placed=placed)


ROWS = {
    "ScaleDryRunSatisfied: at its maximum nothing is granted": (
        cluster((0, 2000), (0, 1000)),
        trainer(100 * MI, 0, 1, 2, 2, cpu=1),
        1.0,
        0,
    ),
    "MoreCPU: +1 per step, and there is capacity for two steps": (
        cluster((100, 3000), (100, 1000)),
        trainer(100 * MI, 0, 1, 3, 1),
        1.0,
        2,
    ),
    "NoMoreCPU: nothing without CPU": (cluster((1000, 1000), (100, 1000)), trainer(100 * MI, 0, 1, 3, 1), 1.0, 0),
    "MoreGPU: up +1 per step; down 0, so nothing is taken": (
        cluster((0, 2000), (100, 1000), (0, 10)),
        trainer(10 * MI, 1, 1, 3, 1),
        1.0,
        2,
    ),
    "NoMoreGPU: nothing without GPU": (
        cluster((0, 2000), (100, 1000), (10, 10)),
        trainer(10 * MI, 1, 1, 3, 1),
        1.0,
        0,
    ),
    "ScaleDownMoreThanExpected: from 6 to its maximum of 3, three steps of -1 and then 0": (
        cluster((1000, 1000), (1000, 1000), (10, 10)),
        trainer(10 * MI, 0, 1, 3, 6),
        1.0,
        -3,
    ),
    "ScaleDownToMin CHANGED (upstream -2): no job is shrunk because a sum is exceeded, TJ 3.5 and 3.6": (
        cluster((5000, 3000), (1000, 1000), (10, 10)),
        trainer(10 * MI, 0, 1, 3, 3),
        1.0,
        0,
    ),
    "ScaleDownFullCluster CHANGED (upstream down -1, up 0): no job is shrunk because a sum is exceeded, TJ 3.6": (
        cluster((2000, 1000), (1000, 1000), (10, 10)),
        trainer(10 * MI, 0, 1, 3, 3),
        1.0,
        0,
    ),
    "NoMem: nothing where memory is full": (
        cluster((1000, 1000), (1000, 1000), (10, 10)),
        trainer(100 * MI, 0, 1, 3, 1),
        1.0,
        0,
    ),
    "AllDryRunNoMem: not even one byte where memory is full": (
        cluster((0, 1000), (1000, 1000), (0, 10)),
        trainer(1, 1, 1, 3, 1),
        1.0,
        0,
    ),
    "AllDryRun: two more to its maximum": (
        cluster((1000, 4000), (100, 1000), (8, 10)),
        trainer(100 * MI, 0, 1, 3, 1),
        1.0,
        2,
    ),
    "AllDryRunNotFull: one more below a load of 80 %": (
        cluster((1000, 3000), (100, 1000), (0, 10)),
        trainer(100 * MI, 0, 1, 3, 1),
        0.8,
        1,
    ),
    "AllDryRunDownNotFull CHANGED (upstream -1): the load bounds growth and takes nothing, TJ 3.6 and 3.15": (
        cluster((3000, 3000), (100, 1000), (0, 10)),
        trainer(100 * MI, 0, 1, 3, 3),
        0.8,
        0,
    ),
    "AllDryRunLessCPU: one more, the CPU ends": (
        cluster((2000, 3000), (100, 1000), (8, 10)),
        trainer(1, 1, 1, 3, 1),
        1.0,
        1,
    ),
    "AllDryRunLessGPU: one more, the GPUs end": (
        cluster((990, 2000), (100, 1000), (9, 10)),
        trainer(1, 1, 1, 3, 1),
        1.0,
        1,
    ),
}


@pytest.mark.parametrize(("there", "one", "load", "expected"), ROWS.values(), ids=ROWS)
def test_rows_of_the_dry_run_and_the_plan(there, one, load, expected):
    assert plan_of(there, one, load=load) == expected


def test_one_step_of_more_cpu_is_one_instance():
    """MoreCPU and MoreGPU exactly: with capacity for one, one is granted."""
    assert plan_of(cluster((100, 1100), (100, 1000)), trainer(100 * MI, 0, 1, 3, 1)) == 1
    assert plan_of(cluster((0, 1000), (100, 1000), (0, 10)), trainer(10 * MI, 1, 1, 3, 1)) == 1


def test_memory_that_is_just_enough_is_enough():
    """CHANGED: upstream rejects equality of free and requested memory (TJ §2.4, up pass 2); kube-scheduler does not."""
    assert plan_of(cluster((0, 9000), (900, 1000)), trainer(100 * MEGA, 0, 1, 3, 1)) == 1


@pytest.mark.parametrize(
    ("floor", "ceiling", "current", "score"),
    [
        pytest.param(1, 2, 2, Fraction(1), id="1..2 at 2 is fulfilled"),
        pytest.param(1, 2, 1, Fraction(0), id="1..2 at 1 has nothing beyond its minimum"),
        pytest.param(1, 3, 2, Fraction(1, 2), id="1..3 at 2 is half fulfilled"),
        pytest.param(4, 4, 4, Fraction(1), id="min equals max: 1, and no division by zero"),
    ],
)
def test_fulfillment(floor, ceiling, current, score):
    assert job("job", floor, ceiling).score_at(current) == score


# --- Who is next -----------------------------------------------------------------------------------------------------------

ONE_OF_ALL = Node("node", {CPU: 10_000, MEMORY: 10, GPU: 1, PODS: 1000})
"""Capacity for one trainer of any job, and for no second one of the job with the largest requests."""


def order_of(*jobs: Participant) -> list[str]:
    """Who is granted first, and first without that one, and so on: `sort` seen from outside."""
    order: list[str] = []
    left = list(jobs)
    while left:
        grants = allocate(ClusterSnapshot((ONE_OF_ALL,), tuple(left), options=AllocationOptions())).resizes
        first = next((one.id.name for one in grants if one.after > one.before), None)
        if first is None:
            break
        order.append(first)
        left = [one for one in left if one.id.name != first]
    return order


def test_sorted_jobs():
    """Least fulfilled first: b (1/19), c (1/9); a is full and d not elastic, so upstream's third is granted nothing."""
    whole = shape(10)
    jobs = [
        job(name, 1, ceiling, 2, shape=whole, placed={"elsewhere": 2})
        for name, ceiling in (("a", 2), ("b", 20), ("c", 10), ("d", 1))
    ]
    assert order_of(*(one for one in jobs if one.is_elastic)) == ["b", "c"]
    assert [one.id.name for one in sorted(jobs, key=lambda one: one.score_at(2)) if one.is_elastic] == ["b", "c", "a"]


def test_jobs_that_are_not_elastic_are_left_alone():
    """The elastic filter of SortedJobs: d (1..1) takes part in nothing."""
    fixed = job("d", 1, 1, 1, placed={"node": 1})
    assert allocate(ClusterSnapshot((ONE_OF_ALL,), (fixed,))).resizes == ()


def test_sorted_jobs_with_tie():
    """Smaller first, by CPU, then memory: b, d, c. CHANGED: upstream has a, the only one with a GPU, last; as all GPUs are
    to be assigned, it comes first here (FD:SH-B13). The CPU requests are such that only one fits."""
    room = Node("node", {CPU: 10, MEMORY: 2, GPU: 1, PODS: 1}, {})
    thousandth = 0.001
    wanted = {"a": (1, 1, 1), "b": (1, 1, 0), "c": (10, 1, 0), "d": (1, 2, 0)}
    jobs = [
        job(name, 1, 2, 1, cpu=cpu * thousandth, memory=memory, gpu=gpu, placed={"elsewhere": 1})
        for name, (cpu, memory, gpu) in wanted.items()
    ]
    order = []
    while jobs:
        (first,) = allocate(ClusterSnapshot((room,), tuple(jobs))).resizes
        order.append(first.id.name)
        jobs = [one for one in jobs if one.id != first.id]
    assert order == ["a", "b", "d", "c"]


def test_gpu_jobs_and_cpu_jobs_are_one_list():
    """CHANGED (SortedJobsGPUOnly had lists of its own): one plan serves both, TJ §3 row 7; the GPU is a's alone."""
    room = Node("node", {CPU: 4000, GPU: 1, PODS: 100}, {})
    jobs = tuple(job(name, 1, 2, 1, gpu=int(name == "a"), placed={"elsewhere": 1}) for name in "abcd")
    assert resizes_of(allocate(ClusterSnapshot((room,), jobs))) == {"a": 1, "b": 1, "c": 1, "d": 1}


# --- predicates ------------------------------------------------------------------------------------------------------------


def test_elastic():
    assert not job("job", 0, 0).is_elastic
    assert job("job", 1, 2).is_elastic
    assert not job("job", 1, 1).is_elastic


def test_need_gpu():
    """Of limits alone, as upstream; and CHANGED: under today's name too, TJ §3 row 18."""
    bare = {"requests": {}, "limits": {}}
    for resources, expected in (
        (bare, False),
        ({"limits": {"alpha.kubernetes.io/nvidia-gpu": 1}}, True),
        ({"limits": {GPU: 1}}, True),
    ):
        written = trainingjob(trainer={"resources": resources})
        assert is_gpu_job(TrainingJob.parse(written), DEFAULT_GPUS) == expected


def test_trainer_request_limit():
    """1k CPUs are a million thousandths; CHANGED: memory is exact bytes, not megabytes rounded up to 105."""
    resources = {"requests": {"cpu": "1k", "memory": "100Mi"}, "limits": {"alpha.kubernetes.io/nvidia-gpu": 10}}
    wanted = role_shape(TrainingJob.parse(trainingjob(trainer={"resources": resources})), TRAINER)
    assert wanted.requests == {CPU: 1_000_000, MEMORY: 100 * MI, GPU: 10, PODS: 1}


def test_add_resource_list():
    """The requests of two containers are added, resource by resource."""
    half = {"cpu": "200m", "memory": "500Mi"}
    containers = [{"resources": {"requests": half}}, {"resources": {"requests": half, "limits": {GPU: 8}}}]
    assert pod_shape({"containers": containers}).requests == {CPU: 400, MEMORY: 1000 * MI, GPU: 8, PODS: 1}


def test_ids_keep_namespaces_apart():
    assert id_of("job", "one") != id_of("job", "two")
