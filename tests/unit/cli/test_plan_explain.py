"""Explanations of why a job is not larger."""

import re
from dataclasses import replace

import pytest

from raytide.api.pod_requirements import CPU, PODS, NodeRequirement
from raytide.cli.plan.explain import differences, explain
from raytide.cli.plan.sentences import SENTENCES
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import MEMORY, Allocation, AllocationOptions, ClusterSnapshot, Node, Taint
from support.distributions import ROOT
from support.elastic_builders import GPU, World, amounts, external_pod, id_of, job, node, quota


@pytest.mark.rule("FD:TJ3-4")
def test_a_gang_that_trainer_0_of_another_job_keeps_waiting_is_told_what_would_help():
    """It said "a higher maximum"."""
    world = World([node("one", cpu=8), node("two", cpu=2)], [job("a", 1, 3, 3), job("gang", 1, 1, is_gang=True, cpu=8)])
    world.jobs[id_of("a")].trainers = ["one", "two", "two"]
    lines = explanation(world, "gang").splitlines()
    assert lines[3] == (
        "  - HeldByRankZero: needs 1 x (8 cpu) to reach its minimum of 1, held by trainer 0 of default/a on node one, which ends "
        "only with its job"
    )
    assert (
        "  - suspending that job (spec.suspend: true) until this one has started: trainer 0 then starts elsewhere"
        in lines
    )
    assert not any("maximum" in line for line in lines[4:])


EAST = (NodeRequirement("zone", "In", frozenset({"east"})),)


def explanation(world: World, name: str) -> str:
    pool = world.pool()
    return explain(pool, allocate(pool), id_of(name))


def full() -> World:
    """Two nodes of 4 CPUs: a has 6, b has 2."""
    return World([node("one", cpu=4), node("two", cpu=4)], [job("a", 2, 8, 6), job("b", 2, 4, 2)])


@pytest.mark.parametrize(
    ("world", "name", "sentences"),
    [
        pytest.param(
            full(),
            "b",
            [
                "default/b has 2 of 2 to 4 (score 0.00); this plan does not change it.",
                "node one comes closest, of 2 that it may run on: it lacks 1 cpu (it requests 1 cpu; 0 of 4 free)",
                "default/a: 6 cpu, with 6 of 2 to 8; it is scaled down to 2, but only for jobs below their minimum",
                "1 cpu more free on node one, or another node with 1 cpu free",
            ],
            id="a job at its minimum waits for capacity, with its holders",
        ),
        pytest.param(
            World([node(cpu=9)], [job("a", 2, 8, 8)]),
            "a",
            ["default/a has 8 of 2 to 8 (score 1.00)", "It is at its maximum"],
            id="a job at its maximum",
        ),
        pytest.param(
            World([node(cpu=9)], [job("a", 2, 8, 2)]),
            "a",
            ["this plan scales it to 8", "2 -> 8: Growing: ", "It is at its maximum"],
            id="a job that reaches its maximum in this plan",
        ),
        pytest.param(
            World([node(cpu=9)], [job("a", 2, 2, 2)]),
            "a",
            ["default/a has 2 of 2;"],
            id="a job of one size has nothing to wait for",
        ),
        pytest.param(
            World([node(cpu=9)], [job("a", 2, 8, 2, may_grow=False)]),
            "a",
            [
                "it is in a cooldown: its last resize is recent or not complete",
                "time: it is considered again when its cooldown ends",
            ],
            id="a cooldown is no missing capacity",
        ),
        pytest.param(
            World([node(cpu=9)], [job("a", 2, 8, 2, is_scaling_enabled=False)]),
            "a",
            ["scaling is disabled for it", "enabling its scaling"],
            id="a job with scaling disabled",
        ),
        pytest.param(
            World(
                [node("one", cpu=4, gpu=2), node("two", cpu=4, is_usable=False), node("three", cpu=4, labels={})],
                [job("a", 1, 2, 1, gpu=2)],
            ),
            "a",
            ["1 node not usable: not ready, or cordoned", "node one comes closest, of 2", "lacks 2 nvidia.com/gpu"],
            id="nodes that do not count are counted",
        ),
        pytest.param(
            World([node("one", cpu=4, taints=(Taint("dedicated"),))], [job("a", 0, 2, 0)]),
            "a",
            [
                "1 node excluded by node selector, affinity or taints",
                "it may run on none of the usable nodes",
                "a node that it may run on, with 1 cpu free",
            ],
            id="a taint is named as such",
        ),
        pytest.param(
            World([node(cpu=9)], [job("a", 2, 8, 2)], quotas=[quota(cpu=2500)]),
            "a",
            [
                "ResourceQuota default/quota allows 500m more of cpu, one instance needs 1",
                "a larger ResourceQuota default/quota",
            ],
            id="a quota is named",
        ),
        pytest.param(
            World([node(cpu=8)], [job("a", 2, 8, 4)], options=AllocationOptions({CPU: 50})),
            "a",
            ["counted by limits, 4 of 4 cpu are used before this plan (growth may use up to 50 %)"],
            id="the load that growth may fill is reported as a sum",
        ),
        pytest.param(
            World([node(cpu=8)], [job("vip", 2, 8, 7, priority=9), job("a", 1, 3, 1)]),
            "a",
            ["default/vip: 7 cpu, with 7 of 2 to 8; it has a higher priority (9 against 0)"],
            id="nothing is to be had from a higher priority",
        ),
        pytest.param(
            World([node(cpu=8)], [job("calm", 2, 8, 7, may_shrink=False), job("a", 1, 3, 1)]),
            "a",
            ["default/calm: 7 cpu, with 7 of 2 to 8; it is in a cooldown"],
            id="nor from a cool-down",
        ),
        pytest.param(
            World(
                [node(cpu=8)],
                [
                    job("low", 2, 8, 7, may_shrink=False, rebalances=True),
                    job("a", 1, 3, 1, priority=5, rebalances=True),
                ],
            ),
            "a",
            ["default/low: 7 cpu, with 7 of 2 to 8; it is in a cooldown"],
            id="growth of a higher priority waits for a cooldown too",
        ),
        pytest.param(
            World(
                [node(cpu=12)],
                [job("low", 2, 20, 12, rebalances=True), job("a", 0, 1, 0, cpu=10, priority=5, rebalances=True)],
            ),
            "a",
            ["default/low: 12 cpu, with 12 of 2 to 20; it is scaled down to 2 for jobs of a higher priority"],
            id="a job of lower priority shrinks, but not by nine trainers for one",
        ),
        pytest.param(
            World([node(cpu=8, used=amounts(cpu=5))], [job("b", 2, 2, 2), job("a", 1, 3, 1)]),
            "a",
            ["default/b: 2 cpu, with 2 of 2 to 2; it is at its minimum", "pods of other workloads: 5 cpu"],
            id="nor from a job at its minimum, nor from pods of other workloads",
        ),
        pytest.param(
            World([node(cpu=8)], [job("a", 2, 8, 2, step=3), job("b", 4, 4, 4)]),
            "a",
            ["capacity for 3 at once: sizes between 2 and 5 are not allowed"],
            id="a step that is too large for the free capacity is reported",
        ),
        pytest.param(
            World(
                [node(cpu=8)],
                [job("a", 2, 8, 4)],
                external_pods=[external_pod(2, count=3, name="shop/web-0"), external_pod(9)],
            ),
            "a",
            [
                "the best node has 0 free beside the capacity reserved for pending pods of other workloads, to grow beyond 4",
                "pod shop/web-0 and 2 more of other workloads are pending and receive free capacity first: 6 cpu",
                "capacity for these pending pods of other workloads, or their deletion",
            ],
            id="free capacity is kept for pending pods of other workloads",
        ),
        pytest.param(
            World([node(cpu=8, gpu=4)], [job("a", 4, 8, 4, gpu=1), job("c", 2, 4, 0, gpu=1)]),
            "c",
            [
                "default/c is not admitted; its bounds are 2 to 4",
                "default/a: 4 nvidia.com/gpu, with 4 of 4 to 8; it is at its min",
            ],
            id="a gang that has not started has its missing resources",
        ),
    ],
)
def test_why_it_is_not_larger(world, name, sentences):
    text = explanation(world, name)
    assert [sentence for sentence in sentences if sentence not in text] == [], text


@pytest.mark.parametrize(
    ("world", "name", "numbers"),
    [
        pytest.param(World([node(cpu=9)], [job("a", 2, 8, 2)]), "a", [3], id="growth into free capacity"),
        pytest.param(World([node(cpu=4)], [job("a", 2, 2, 0, gpu=0, is_gang=True)]), "a", [2], id="a gang is admitted"),
        pytest.param(
            World([node(cpu=8)], [job("a", 2, 8, 8), job("b", 2, 2, 0, is_gang=True)]),
            "a",
            [5, 4],
            id="a minimum takes",
        ),
        pytest.param(
            World([node(cpu=8)], [job("a", 1, 8, 7, rebalances=True), job("b", 1, 8, 1, rebalances=True)]),
            "a",
            [7],
            id="it is far ahead",
        ),
        pytest.param(
            World([node(cpu=8)], [job("a", 1, 8, 7, priority=1), job("b", 2, 2, 0, is_gang=True)]),
            "b",
            [6],
            id="the capacity is held by a higher priority",
        ),
        pytest.param(full(), "b", [4], id="it takes free capacity only"),
        pytest.param(
            World([node(cpu=8)], [job("a", 1, 8, 5, rebalances=True), job("b", 1, 8, 3, rebalances=True)]),
            "b",
            [7],
            id="no job of its priority gives",
        ),
    ],
)
def test_the_sentence_that_decided_is_named(world, name, numbers):
    text = explanation(world, name)
    assert re.findall(r"^Fair sharing, sentence (\d+): ", text, re.MULTILINE) == [str(number) for number in numbers], (
        text
    )


def test_the_sentences_are_those_of_the_decision_record():
    text = (ROOT / "docs/adr/0023-claims-and-donors.md").read_text()
    found = re.findall(r"^\d+\. (.+?)(?=\n\d+\. |\n\n)", text, re.MULTILINE | re.DOTALL)
    assert tuple(" ".join(sentence.split()) for sentence in found) == SENTENCES


def test_free_capacity_is_counted_as_it_is_after_the_plan():
    """What another job is granted in the same plan is not free any more."""
    world = World([node(cpu=3)], [job("a", 1, 2, 1), job("b", 1, 9, 1)])
    assert "it lacks 1 cpu (it requests 1 cpu; 0 of 3 free)" in explanation(world, "b")


def test_only_the_first_five_holders_of_the_capacity_are_named():
    world = World([node(cpu=14)], [*(job(f"other-{n}", 2, 2, 2) for n in range(6)), job("a", 1, 9, 2)])
    text = explanation(world, "a")
    assert "- 1 more" in text
    assert text.count("default/other-") == 5


def test_a_node_without_a_pod_limit_can_hold_any_number_of_pods():
    has_two = job("a", 1, 4, 2, placed={"one": 2})
    pool = ClusterSnapshot((Node("one", {CPU: 2000, MEMORY: 9}, {CPU: 2000, PODS: 2}),), (has_two,))
    text = explain(pool, allocate(pool), has_two.id)
    assert "it lacks 1 cpu (it requests 1 cpu; 0 of 2 free)" in text
    assert "pods" not in text.partition("Obstacles:")[2]


def test_a_job_that_is_no_participant_cannot_be_explained():
    pool = full().pool()
    with pytest.raises(KeyError):
        explain(pool, Allocation(), id_of("nobody"))


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(
            job("c", 2, 4, 0, is_gang=True),
            ("default/c starts with 2 of 2 to 4", "default/a is scaled down by 2 (6 -> 4)"),
            id="jobs that shrink are named with the number",
        ),
        pytest.param(
            job("c", 1, 2, 0, cpu=100, is_gang=True),
            None,
            id="a job that cannot start changes no other job",
        ),
    ],
)
def test_what_would_change_if_it_were_submitted(new, expected):
    before = full()
    after = full()
    after.add(new)
    pools = [world.pool() for world in (before, after)]
    lines = differences((pools[0], allocate(pools[0])), (pools[1], allocate(pools[1])), [new.id])
    if expected is not None:
        assert lines == expected
    else:
        assert lines[0].startswith("default/c waits: Unsatisfiable: ")
        assert lines[1:] == ("the size of no other job changes",)


def test_jobs_that_grow_less_because_of_a_new_job_are_listed():
    before = World([node(cpu=8)], [job("a", 1, 8, 2)])
    after = World([node(cpu=8)], [job("a", 1, 8, 2)])
    after.add(job("c", 3, 3, 0, is_gang=True))
    pools = [world.pool() for world in (before, after)]
    lines = differences((pools[0], allocate(pools[0])), (pools[1], allocate(pools[1])), [id_of("c")])
    assert lines == ("default/c starts with 3 of 3 to 3", "default/a grows by 3 less (2 -> 5, not 8)")


def test_the_explanation_of_a_gpu_job_names_gpu_nodes_first():
    world = World(
        [node("plain", cpu=64), node("gpus", cpu=64, gpu=4, used=amounts(gpu=4))],
        [replace(job("a", 1, 2, 0, gpu=1), placed={})],
    )
    assert f"lacks 1 {GPU}" in explanation(world, "a")


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(
            World([node(cpu=80, gpu=2)], [job("a", 2, 8, 2, gpu=1)], external_pods=[external_pod(1)]),
            id="a pod of another workload that holds nothing of what is short",
        ),
        pytest.param(
            World([node(cpu=80)], [job("a", 2, 8, 4)], external_pods=[external_pod(1)], quotas=[quota(cpu=0)]),
            id="only a quota limits the job",
        ),
        pytest.param(
            World(
                [node(cpu=8)],
                [job("low", 5, 5, 5), job("a", 4, 8, 0, priority=5, is_gang=True)],
                external_pods=[external_pod(1, count=5)],
            ),
            id="below the minimum it comes before pods of other workloads of a lower priority",
        ),
    ],
)
def test_external_pods_that_block_no_job_are_not_named(world):
    text = explanation(world, "a")
    assert "pods of other workloads" not in text, text
    assert "pending" not in text, text
    assert "pod of another workload" not in text, text
