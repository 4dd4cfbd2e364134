"""The cache between two snapshots changes nothing but the time that they take (PF:P10)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raytide.api.capacity import Priority
from raytide.api.config import SharingConfig
from raytide.api.sharing_record import ResizeNote, SharingRecord
from raytide.api.trainingjob import TrainingJob
from raytide.fairshare import snapshot as pools_module
from raytide.fairshare.snapshot import SnapshotBuilder, build_snapshot
from unit.fairshare.test_participants import NOW, counter, external_pod, job, node, pod_of, quota

JOBS, NODES = ("a", "b", "c"), ("n1", "n2", "n3", "")
CONFIG = SharingConfig()
STATUSES = st.sampled_from(({}, {"startTime": "2026-01-01T11:59:50Z"}, {"trainer": {"succeeded": 1}}))


@dataclass
class World:
    """What informers would show: objects stay the same until something about them changes."""

    jobs: dict = field(default_factory=dict)
    pods: dict = field(default_factory=dict)
    nodes: dict = field(default_factory=dict)
    quotas: tuple = ()
    priorities: dict = field(default_factory=dict)
    now: object = NOW

    def pool(self, pools: SnapshotBuilder):
        return pools.build(
            list(self.jobs.values()),
            list(self.pods.values()),
            list(self.nodes.values()),
            quotas=self.quotas,
            priorities=self.priorities,
            now=self.now,
        )


def record_of(uid, size, seconds_ago):
    notes = (ResizeNote(NOW - timedelta(seconds=seconds_ago), 1, size, "Growing", "m"),) if seconds_ago else ()
    return SharingRecord(uid, size, is_admitted=True, admitted_at=NOW, resizes=notes)


@st.composite
def a_job(draw):
    name, uid = draw(st.sampled_from(JOBS)), draw(st.sampled_from(("u1", "u2")))
    size = draw(st.sampled_from((None, 0, 2, 4, 9)))
    record = draw(st.sampled_from((None, 0, 5, 20, 100)))
    more = {"generation": next(counter), "uid": uid}
    if draw(st.booleans()):
        more["deletionTimestamp"] = "2026-01-01T11:00:00Z"
    made = job(
        name,
        draw(st.integers(1, 2)),
        draw(st.sampled_from((2, 6))),
        gpu=draw(st.sampled_from((0, 1))),
        replicas=size,
        record=None if record is None else record_of(uid, size or 0, record),
        metadata=more,
        status=draw(STATUSES),
    )
    return lambda world: world.jobs.update({name: made})


@st.composite
def a_status(draw):
    """Another status of the same generation."""
    name, status = draw(st.sampled_from(JOBS)), draw(STATUSES)

    def written(world):
        if name in world.jobs:
            world.jobs[name] = TrainingJob.parse({**world.jobs[name].raw, "status": status})

    return written


@st.composite
def a_pod(draw):
    owner, index = draw(st.sampled_from(JOBS)), draw(st.integers(0, 3))
    role, where = draw(st.sampled_from(("trainer", "pserver", "master"))), draw(st.sampled_from(NODES))
    more = {"deletionTimestamp": "2026-01-01T11:00:00Z"} if draw(st.booleans()) else {}
    phase = draw(st.sampled_from(("Running", "Succeeded")))
    made = pod_of(index, where, role=role, uid=draw(st.sampled_from(("u1", "u2"))), job=owner, phase=phase, **more)
    return lambda world: world.pods.update({made.name: made})


@st.composite
def an_external_pod(draw):
    made = external_pod(
        draw(st.sampled_from(("1", "2"))), draw(st.sampled_from(NODES)), priority=draw(st.integers(0, 1))
    )
    key = draw(st.integers(0, 3))
    return lambda world: world.pods.update({key: made})


@st.composite
def a_node(draw):
    made = node(draw(st.sampled_from(NODES[:3])), draw(st.sampled_from(("4", "8"))), unschedulable=draw(st.booleans()))
    return lambda world: world.nodes.update({made.name: made})


def lost(kind: str) -> st.SearchStrategy[Callable[[World], object]]:
    """Whatever stands first of that kind goes."""
    return st.just(lambda world: getattr(world, kind).pop(next(iter(getattr(world, kind)), None), None))


def set_to(name: str, *values) -> st.SearchStrategy[Callable[[World], object]]:
    return st.sampled_from(values).map(lambda value: lambda world: setattr(world, name, value))


CHANGES = st.one_of(
    a_job(),
    a_status(),
    a_pod(),
    a_pod(),
    an_external_pod(),
    a_node(),
    lost("jobs"),
    lost("pods"),
    lost("nodes"),
    set_to("priorities", {}, {"": Priority(3)}, {"high": Priority(5)}, {"high": Priority(5, may_preempt=False)}),
    set_to("quotas", (), (quota({"requests.cpu": "9", "pods": "4"}),)),
    set_to("now", *(NOW + timedelta(seconds=seconds) for seconds in (-30, 0, 6, 20, 90))),
)


@given(st.lists(st.lists(CHANGES, max_size=3), min_size=2, max_size=12))
@settings(max_examples=150)
def test_a_snapshot_is_the_same_whatever_was_seen_before(steps):
    world, pools = World(), SnapshotBuilder(CONFIG)
    for changes in steps:
        for change in changes:
            change(world)
        assert world.pool(pools) == world.pool(SnapshotBuilder(CONFIG))


def test_unchanged_objects_are_not_computed_again(monkeypatch):
    asked = []
    look = pools_module.claimed
    monkeypatch.setattr(
        pools_module, "claimed", lambda each, *args, **more: asked.append(each.key.name) or look(each, *args, **more)
    )
    world, pools = World(), SnapshotBuilder(CONFIG)
    world.jobs = {name: job(name, metadata={"uid": name}) for name in JOBS}
    world.nodes = {"n1": node("n1")}
    world.pool(pools)
    assert asked == ["a", "b", "c"]

    world.pods["a-trainer-0"] = pod_of(0, "n1", uid="a", job="a")
    before = world.pool(pools)
    assert asked[3:] == ["a"], "a pod of a has come"
    again = world.pool(pools)
    assert len(asked) == 4
    assert again.nodes[0] is before.nodes[0]
    assert all(one is other for one, other in zip(again.participants, before.participants, strict=True))


def test_a_job_that_breaks_leaves_what_is_known_of_others_whole(monkeypatch):
    look = pools_module.claimed

    def breaks(each, *args, **more):
        if each.key.name == "b" and is_broken:
            raise ValueError
        return look(each, *args, **more)

    monkeypatch.setattr(pools_module, "claimed", breaks)
    is_broken = True
    world, pools = World(), SnapshotBuilder(CONFIG)
    world.jobs = {name: job(name, metadata={"uid": name}) for name in JOBS}
    world.pods = {name: pod_of(0, "n1", uid=name, job=name) for name in JOBS}
    world.nodes = {"n1": node("n1")}
    with pytest.raises(ValueError):
        world.pool(pools)
    is_broken = False
    assert world.pool(pools) == world.pool(SnapshotBuilder(CONFIG))


def test_pods_of_a_deleted_job_are_charged_to_no_job():
    pods = [pod_of(0, "n1", uid="u1")]
    pools = SnapshotBuilder(CONFIG)
    assert pools.build([job(metadata={"uid": "u1"})], pods, [node("n1")], now=NOW).nodes[0].charged["cpu"] == 1000
    gone = pools.build([], pods, [node("n1")], now=NOW)
    assert gone == build_snapshot([], pods, [node("n1")], config=CONFIG, now=NOW)
    assert gone.nodes[0].used["cpu"] == 1000


@pytest.mark.parametrize(
    ("seconds_ago", "left_s"),
    [
        pytest.param((), None, id="no job is in a cooldown"),
        pytest.param((5, 8), 3, id="the first of two cooldowns that ends: 10 s after a resize, and one for rounding"),
        pytest.param((5, 100), 6, id="a cooldown that is over changes nothing"),
    ],
)
def test_when_time_alone_makes_it_another(seconds_ago, left_s):
    names = [f"j{number}" for number in range(len(seconds_ago))]
    jobs = [
        job(name, replicas=2, record=record_of(name, 2, seconds), metadata={"uid": name})
        for name, seconds in zip(names, seconds_ago, strict=True)
    ]
    pools = SnapshotBuilder(CONFIG)
    pools.build(jobs, (), (), now=NOW)
    assert pools.changes_at == (None if left_s is None else NOW + timedelta(seconds=left_s))
