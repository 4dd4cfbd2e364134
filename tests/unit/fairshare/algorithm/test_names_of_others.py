"""Messages on a job name nothing of other namespaces; the operator's log and `raytide plan` may."""

import pytest

from raytide.api.sharing_record import RECLAIMED
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.patch_plan import plan_patches
from support.elastic_builders import World, external_pod, id_of, job, node
from unit.fairshare.test_participants import NOW
from unit.fairshare.test_participants import job as job_object

SECRET = "secret-project"


def divided(*jobs, cpu=10, **more):
    return allocate(World([node(cpu=cpu)], jobs, **more).pool())


def leaks(division):
    return [one.message for one in (*division.resizes, *division.waiting) if SECRET in one.message]


def other(name, *sizes, **more):
    return job(name, *sizes, namespace=SECRET, **more)


@pytest.mark.rule("FD:SEC-F7")
@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        pytest.param(
            [job("a", 1, 10, 10), other("merger", 4, 4, 0, is_gang=True)],
            "ScaledDown 10→6 for a job of another namespace, which needs 4 to reach its minimum",
            id="one that is reclaimed for",
        ),
        pytest.param(
            [job("a", 1, 10, 10), other("b", 2, 2, 0, is_gang=True), other("c", 3, 3, 0, is_gang=True)],
            "ScaledDown 10→5 for 2 jobs of other namespaces, which need 5 to reach their minimum",
            id="several",
        ),
        pytest.param(
            [job("a", 1, 10, 10), job("b", 2, 2, 0, is_gang=True), other("c", 3, 3, 0, is_gang=True)],
            "ScaledDown 10→5 for default/b, which needs 2 to reach its minimum, "
            "and for a job of another namespace, which needs 3 to reach its minimum",
            id="one of its own namespace among them",
        ),
        pytest.param(
            [job("a", 1, 10, 9, rebalances=True), other("b", 1, 10, 1, rebalances=True)],
            "ScaledDown 9→5 for a job of another namespace, which is less fulfilled",
            id="evening out",
        ),
    ],
)
def test_a_resize_names_no_job_of_another_namespace(jobs, words):
    division = divided(*jobs)
    assert leaks(division) == []
    assert words in [one.message for one in division.resizes]
    assert SECRET in next(one.full_message for one in division.resizes if one.id == id_of("a"))


@pytest.mark.rule("FD:SEC-F7")
def test_the_message_of_a_waiting_job_names_no_job_of_another_namespace():
    division = divided(other("high", 1, 10, 10, priority=9), job("new", 2, 2, 0, is_gang=True))
    (waiting,) = [one for one in division.waiting if one.id == id_of("new")]
    assert "held by a job of another namespace, which has a higher priority" in waiting.message
    assert f"held by {SECRET}/high" in waiting.full_message


@pytest.mark.rule("FD:SEC-F7")
def test_pods_of_other_namespaces_are_counted():
    waiting = external_pod(count=3, priority=9, is_unschedulable=True, name=f"{SECRET}/web-0")
    division = divided(job("a", 1, 10, 10, yields=True), external_pods=[waiting])
    (resize,) = division.resizes
    assert resize.message == "ScaledDown 10→7 for 3 pods of other namespaces, which have a higher priority and no node"
    assert f"{SECRET}/web-0 and 2 more pods" in resize.full_message


@pytest.mark.rule("FD:SEC-F7")
def test_a_pod_of_another_namespace_that_trainers_are_behind_is_not_named():
    waiting = external_pod(cpu=20, priority=9, name=f"{SECRET}/web-0")
    world = World([node(cpu=20, used={"cpu": 10_000})], [job("a", 1, 12, 12)], external_pods=[waiting])
    (resize,) = allocate(world.pool()).resizes
    assert "after a pod of another namespace, which has a higher priority" in resize.message
    assert f"after {SECRET}/web-0" in resize.full_message


@pytest.mark.rule("FD:SEC-F7")
def test_the_record_of_a_job_has_no_name_of_another_namespace():
    world = World([node(cpu=10)], [job("a", 1, 10, 10), other("merger", 4, 4, 0, is_gang=True)])
    mine = job_object("a", 1, 10, replicas=10, namespace="default")
    (order,) = plan_patches([mine], world.pool(), allocate(world.pool()), NOW, trainers={}).patches
    note = order.record.resizes[-1]
    assert (note.reason, note.for_job) == (RECLAIMED, "")
    assert SECRET not in str(order.patch("1"))
    assert f"{SECRET}/merger" in order.in_full, "the operator's log says it"


@pytest.mark.rule("FD:SEC-F7")
def test_the_record_has_the_uid_of_a_receiver_of_another_namespace_for_readers_who_may_resolve_it():
    world = World([node(cpu=10)], [job("a", 1, 10, 10), other("merger", 4, 4, 0, is_gang=True)])
    mine, merger = (
        job_object("a", 1, 10, replicas=10, namespace="default"),
        job_object("merger", 4, 4, namespace=SECRET),
    )
    merger = merger.model_copy(update={"metadata": merger.metadata.model_copy(update={"uid": "uid-of-merger"})})
    orders = plan_patches([mine, merger], world.pool(), allocate(world.pool()), NOW, trainers={}).patches
    (order,) = [each for each in orders if each.job is mine]
    assert order.record.resizes[-1].for_uids == ("uid-of-merger",)
    assert SECRET not in str(order.patch("1"))


@pytest.mark.rule("FD:SEC-F7")
def test_the_record_has_the_uid_of_the_owner_of_pods_that_a_job_yields_to():
    waiting = external_pod(count=3, priority=9, is_unschedulable=True, name=f"{SECRET}/etl-0", owner_uid="uid-of-etl")
    world = World([node(cpu=10)], [job("a", 1, 10, 10, yields=True)], external_pods=[waiting])
    mine = job_object("a", 1, 10, replicas=10, namespace="default")
    (order,) = plan_patches([mine], world.pool(), allocate(world.pool()), NOW, trainers={}).patches
    assert order.record.resizes[-1].for_uids == ("uid-of-etl",)
    assert SECRET not in str(order.patch("1"))
