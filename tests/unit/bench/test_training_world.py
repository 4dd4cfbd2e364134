"""The simulation of training policies behaves as a cluster does."""

import pytest

from support.training_policies import Edl, Fixed, Raytide
from support.training_world import Ask, Circumstances, Job, Policy, SimNode, Submission, World

ONE = Ask(1000, 1024)
QUICK = Circumstances(start_s=3.0, stop_s=5.0)


def world(policy: Policy | None = None, *cpus: int, circumstances: Circumstances = QUICK) -> World:
    nodes = [SimNode(f"node-{i}", cpu * 1000, 64 * 1024) for i, cpu in enumerate(cpus or (8,))]
    return World(nodes, policy or Fixed(), circumstances)


def submitted(
    there: World, name: str = "job", *, at_s: float = 0.0, low: int = 2, high: int = 6, **more: object
) -> None:
    there.submit(Submission(name, at_s, low, high, ONE, **{"initial": low, **more}))  # type: ignore[arg-type]


def sizes(there: World) -> dict[str, int]:
    return {job.of.name: job.wanted for job in there.jobs}


def only(there: World) -> Job:
    (job,) = there.jobs
    return job


def test_trainers_share_the_work_and_the_job_ends_when_it_is_done() -> None:
    there = world()
    submitted(there, work_s=100.0)
    there.run(60.0)
    assert only(there).ended_s == pytest.approx(3.0 + 100.0 / 2)
    assert not there.pods, "its pods have left"


def test_without_its_parameter_servers_a_job_makes_no_progress() -> None:
    there = world(None, 3)
    submitted(there, work_s=10.0, pservers=2, pserver=Ask(2000, 1024))
    there.run(100.0)
    assert only(there).ended_s is None


def test_utilisation_counts_running_pods_until_they_are_gone() -> None:
    there = world()
    submitted(there)
    there.run(10.0)
    assert there.utilisation == pytest.approx(25.0)
    there.end(only(there))
    there.run(14.0)
    assert there.utilisation == pytest.approx(25.0), "they still run in their grace period"
    there.run(20.0)
    assert there.utilisation == 0.0
    assert there.used_cpu_s == pytest.approx(2000 * 12.0)


def test_pods_are_bound_to_the_node_with_most_free_capacity() -> None:
    there = world(None, 4, 12)
    submitted(there)
    there.run(1.0)
    assert [pod.node and pod.node.name for pod in there.pods.values()] == ["node-1", "node-1"]


def test_a_shrink_removes_trainers_without_a_node_and_then_the_highest_index() -> None:
    there = world(None, 3)
    submitted(there, initial=4)
    there.run(5.0)
    there.resize(only(there), 2)
    assert sorted(pod.index for pod in only(there).live("trainer")) == [0, 1]
    there.run(20.0)
    assert sorted(pod.index for pod in there.pods.values()) == [0, 1]


@pytest.mark.parametrize(
    ("longest_backoff_s", "expected_s"),
    [
        pytest.param(0.0, 20.0 + 5.0 + 3.0, id="today's scheduler retries when capacity is freed"),
        pytest.param(60.0, 31.0 + 3.0, id="the scheduler of 1.6 retries after 1, 3, 7, 15 and 31 seconds"),
    ],
)
def test_a_pod_that_fits_no_node_is_retried(longest_backoff_s: float, expected_s: float) -> None:
    there = world(None, 2, circumstances=Circumstances(3.0, 5.0, longest_backoff_s))
    submitted(there, "first")
    submitted(there, "second")
    there.at(20.0, lambda: there.end(there.jobs[0]))
    there.run(100.0)
    assert there.jobs[1].first_running_s == pytest.approx(expected_s)


def test_edl_fills_the_cluster_up_to_its_load() -> None:
    there = world(Edl(max_load=0.8), 10)
    submitted(there, high=20)
    there.run(60.0)
    assert sizes(there) == {"job": 8}


def test_raytide_fills_the_cluster_and_gives_a_new_job_its_minimum() -> None:
    there = world(Raytide())
    submitted(there, "old", high=20)
    there.run(60.0)
    assert sizes(there) == {"old": 8}
    submitted(there, "new", at_s=100.0)
    there.run(101.5)
    assert sizes(there) == {"old": 4, "new": 2}, "two more are for the new job's growth"
    there.run(120.0)
    assert there.jobs[1].complete_s == pytest.approx(100.0 + 1.0 + 5.0 + 3.0)


def test_raytide_grows_only_when_leaving_pods_are_gone() -> None:
    there = world(Raytide(scaling={"growCooldownSeconds": 0, "shrinkCooldownSeconds": 0}))
    submitted(there, "one", low=2, high=4)
    submitted(there, "two", low=2, high=8)
    there.run(60.0)
    assert sizes(there) == {"one": 3, "two": 5}
    there.end(there.jobs[0])
    there.run(64.0)
    assert sizes(there)["two"] == 5, "they still hold their room"
    there.run(70.0)
    assert sizes(there)["two"] == 8


def test_the_same_seed_is_the_same_history() -> None:
    def history(seed: int) -> float:
        there = world(Raytide(), 4, circumstances=Circumstances(3.0, 5.0, 0.0, seed))
        submitted(there, "a", high=9, work_s=100.0)
        submitted(there, "b", at_s=10.0, high=9, work_s=100.0)
        there.run(300.0)
        return there.used_cpu_s

    assert history(1) == history(1)
    assert history(1) != history(2)
