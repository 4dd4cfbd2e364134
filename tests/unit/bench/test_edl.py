"""The EDL baseline decides as EDL's own unit tests assert: every row of TJ 2.6 that is about a decision, and TJ 2.5."""

import pytest

from support.edl import EdlCluster, EdlJob, EdlNode, in_order, plan, step_down, step_up

MEGA_OF_100_MI = 105


def job(
    *, cpu: int = 1000, memory: int = MEGA_OF_100_MI, gpus: int = 0, bounds: tuple[int, int] = (1, 3), at: int = 1
) -> EdlJob:
    return EdlJob("job", *bounds, at, cpu, memory, gpus)


def cluster(
    cpu: tuple[int, int], memory: tuple[int, int], gpu: tuple[int, int] = (0, 0), *, has_node: bool = True
) -> EdlCluster:
    """Each pair is what is used, and the total."""
    nodes = {"node": EdlNode(99999, 99999)} if has_node else {}
    return EdlCluster(cpu[1], cpu[0], memory[1], memory[0], gpu[1], gpu[0], nodes)


@pytest.mark.parametrize(
    ("one", "there", "expected"),
    [
        pytest.param(
            job(cpu=1024 * 1024 * 1000, bounds=(1, 2), at=2),
            cluster((0, 2000), (0, 1000), has_node=False),
            0,
            id="a job at its maximum gets nothing",
        ),
        pytest.param(job(), cluster((100, 3000), (100, 1000)), 1, id="more where CPU is free"),
        pytest.param(job(), cluster((1000, 1000), (100, 1000)), 0, id="nothing where CPU is used up"),
        pytest.param(
            job(memory=11, gpus=1), cluster((0, 2000), (100, 1000), (0, 10)), 1, id="more where GPUs are free"
        ),
        pytest.param(
            job(memory=11, gpus=1), cluster((0, 2000), (100, 1000), (10, 10)), 0, id="nothing where GPUs are used up"
        ),
        pytest.param(job(), cluster((1000, 1000), (1000, 1000), (10, 10)), 0, id="nothing where memory is used up"),
        pytest.param(
            job(memory=11, at=3), cluster((2000, 1000), (1000, 1000), (10, 10)), 0, id="nothing in a full cluster"
        ),
    ],
)
def test_upward(one: EdlJob, there: EdlCluster, expected: int) -> None:
    assert step_up(one, one.current, there, 1.0) == expected


@pytest.mark.parametrize(
    ("one", "there", "expected"),
    [
        pytest.param(
            job(memory=11, at=6),
            cluster((1000, 1000), (1000, 1000), (10, 10), has_node=False),
            [-1, -1, -1, 0],
            id="above its maximum, one by one until there",
        ),
        pytest.param(
            job(memory=11, at=3), cluster((5000, 3000), (1000, 1000), (10, 10)), [-1, -1, 0], id="down to its minimum"
        ),
        pytest.param(
            job(memory=11, gpus=1), cluster((0, 2000), (100, 1000), (0, 10)), [0], id="nothing while there is capacity"
        ),
    ],
)
def test_downward(one: EdlJob, there: EdlCluster, expected: list[int]) -> None:
    planned, found = one.current, []
    for _ in expected:
        found.append(step_down(one, planned, there, 1.0))
        planned += found[-1]
    assert found == expected


@pytest.mark.parametrize(
    ("one", "there", "max_load", "expected"),
    [
        pytest.param(job(memory=1, gpus=1), cluster((0, 1000), (1000, 1000), (0, 10)), 1.0, 0, id="AllDryRunNoMem"),
        pytest.param(job(), cluster((1000, 4000), (100, 1000), (8, 10)), 1.0, 2, id="AllDryRun"),
        pytest.param(job(), cluster((1000, 3000), (100, 1000), (0, 10)), 0.8, 1, id="AllDryRunNotFull"),
        pytest.param(job(at=3), cluster((3000, 3000), (100, 1000), (0, 10)), 0.8, -1, id="AllDryRunDownNotFull"),
        pytest.param(job(memory=1, gpus=1), cluster((2000, 3000), (100, 1000), (8, 10)), 1.0, 1, id="AllDryRunLessCPU"),
        pytest.param(job(memory=1, gpus=1), cluster((990, 2000), (100, 1000), (9, 10)), 1.0, 1, id="AllDryRunLessGPU"),
    ],
)
def test_a_whole_plan(one: EdlJob, there: EdlCluster, max_load: float, expected: int) -> None:
    assert plan([one], there, max_load) == {"job": expected}


def test_scores() -> None:
    assert [job(bounds=bounds, at=at).score for bounds, at in (((1, 2), 2), ((1, 2), 1), ((1, 3), 2), ((1, 1), 1))] == [
        1,
        0,
        0.5,
        1,
    ]


def test_the_least_fulfilled_comes_first_and_fixed_jobs_take_no_part() -> None:
    jobs = [EdlJob(name, 1, high, 2, 1, 1) for name, high in (("a", 2), ("b", 20), ("c", 10), ("d", 1))]
    assert [one.name for one in in_order(jobs)] == ["b", "c", "a"]


def test_among_equals_the_smaller_comes_first() -> None:
    asked = {"a": (1, 1, 1), "b": (1, 1, 0), "c": (10, 1, 0), "d": (1, 2, 0)}
    jobs = [EdlJob(name, 1, 2, 1, cpu, memory, gpus) for name, (cpu, memory, gpus) in asked.items()]
    assert [one.name for one in in_order(jobs)] == ["b", "d", "c", "a"]


def test_each_job_gets_one_trainer_in_turn_regardless_of_fulfillment() -> None:
    """TJ 2.5, D3: the rule of the design document would give all six to `a`."""
    jobs = [EdlJob("a", 1, 20, 2, 1000, 0), EdlJob("b", 1, 10, 5, 1000, 0)]
    assert plan(jobs, cluster((7000, 13000), (0, 1000)), 1.0) == {"a": 3, "b": 3}


def test_a_pod_that_can_never_run_shrinks_all_jobs() -> None:
    """TJ 2.5, D5."""
    jobs = [EdlJob("a", 2, 20, 20, 1000, 0), EdlJob("b", 2, 20, 15, 1000, 0)]
    assert plan(jobs, cluster((1_035_000, 40000), (0, 1000)), 1.0) == {"a": -18, "b": -13}


def test_the_loop_that_never_ends_is_ended() -> None:
    """TJ 2.5, D1: up by one, down by one, for a job that requests only GPUs."""
    one = EdlJob("job", 1, 10, 4, 0, 0, 1)
    assert plan([one], cluster((0, 1000), (0, 1000), (9, 10)), 0.97) == {"job": 0}
