"""Participants of a snapshot: which jobs, with which values, and where their pods are (TJ §3)."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import msgspec
import pytest

from raytide.api import trainingjob_constants as constants
from raytide.api.capacity import (
    Priority,
    capacity_node_from_object,
    capacity_pod_from_object,
    capacity_quota_from_object,
)
from raytide.api.conditions import timestamp
from raytide.api.config import JobConfig, SharingConfig
from raytide.api.pod_requirements import NodeRequirement, PodToleration, pod_shape
from raytide.api.sharing_record import UNSCHEDULABLE, RequestNote, ResizeNote, SharingRecord, WaitingNote, encode_record
from raytide.api.trainingjob import TrainingJob
from raytide.fairshare.algorithm.allocate import allocate
from raytide.fairshare.algorithm.model import INSUFFICIENT, AllocationOptions, Core, Taint
from raytide.fairshare.pod_requirements import role_shape, shape_from
from raytide.fairshare.snapshot import SnapshotBuilder, build_snapshot
from raytide.trainingjob.manifests.objects import build_pod
from support.training_builders import size_for
from unit.fairshare.harness import job_manifest

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
UID = "job-uid"
GI = 1 << 30


def job(name="j", floor=2, ceiling=6, *, record=None, status=None, replicas=None, namespace="ns", **more):
    metadata = more.pop("metadata", {})
    obj = job_manifest(name, floor, ceiling, **more)
    trainer = obj["spec"]["trainer"]
    if replicas is not None:
        trainer["replicas"] = replicas
    obj["metadata"] = {"name": name, "namespace": namespace, "uid": UID, "generation": 1, **metadata}
    if record is not None:
        obj["metadata"]["annotations"] = {constants.SHARING_ANNOTATION: encode_record(record)}
    return TrainingJob.parse({**obj, "status": status or {}})


counter = itertools.count()


def pod_of(index, node="", *, role="trainer", uid=UID, phase="Running", cpu="1", job="j", **metadata):
    labels = {constants.JOB_LABEL: job, constants.ROLE_LABEL: role, constants.INDEX_LABEL: str(index)}
    owner = {"uid": uid, "controller": True}
    amounts = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    return capacity_pod_from_object(
        {
            "metadata": {
                "namespace": "ns",
                "name": f"{job}-{role}-{index}",
                "labels": labels,
                "ownerReferences": [owner],
                **metadata,
            },
            "spec": {"nodeName": node, "containers": [{"name": role, "resources": amounts}]},
            "status": {"phase": phase if node else "Pending"},
        }
    )


def external_pod(cpu, node="", **spec):
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": "99"}}}]
    metadata = {"namespace": "other", "name": f"s-{next(counter)}", **spec.pop("metadata", {})}
    return capacity_pod_from_object(
        {"metadata": metadata, "spec": {"nodeName": node, "containers": containers, **spec}}
    )


def node(name="n1", cpu="8", *, conditions=None, labels=None, **spec):
    status = {"allocatable": {"cpu": cpu, "pods": "110"}, "conditions": conditions or []}
    return capacity_node_from_object(
        {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": status}
    )


def made(jobs=(), pods=(), nodes=(), *, now=NOW, **more):
    jobs = [jobs] if isinstance(jobs, TrainingJob) else jobs
    return build_snapshot(jobs, pods, nodes, config=more.pop("config", SharingConfig()), now=now, **more)


def only(*args, **more):
    (participant,) = made(*args, **more).participants
    return participant


def ordered(replicas, *resizes, **more):
    return SharingRecord(UID, replicas, is_admitted=True, admitted_at=NOW, resizes=resizes, **more)


# --- bounds and sizes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, (2, 6, 2), id="an optimistic job has its minimum at once"),
        pytest.param({"replicas": 4}, (2, 6, 4), id="a size that was ordered"),
        pytest.param({"replicas": 9}, (2, 6, 9), id="above the maximum: the plan takes it down"),
        pytest.param({"replicas": 1}, (2, 6, 1), id="below the minimum: the plan lifts it"),
        pytest.param(
            {"gpu": 1, "replicas": 4}, (2, 6, 0), id="a gang that was not admitted has size 0, whatever its spec"
        ),
        pytest.param({"gpu": 1, "record": ordered(4), "replicas": 4}, (2, 6, 4), id="an admitted one has its size"),
        pytest.param(
            {"gpu": 1, "record": SharingRecord("of another", 4, is_admitted=True, admitted_at=NOW), "replicas": 4},
            (2, 6, 0),
            id="a record that was copied from another job means nothing",
        ),
        pytest.param({"startPolicy": "Gang"}, (2, 6, 0), id="a gang without GPUs"),
        pytest.param({"gpu": 1, "startPolicy": "Optimistic"}, (2, 6, 2), id="GPUs without a gang"),
    ],
)
@pytest.mark.rule("TJ:3.11", "TJ:3.17", "TJ:3.21")
def test_bounds_and_current(spec, expected):
    one = only(job(**spec))
    assert (one.floor, one.ceiling, one.current) == expected


def test_a_running_gang_without_a_record_keeps_its_size():
    pods = [pod_of(i, "n1") for i in range(3)]
    assert only(job(gpu=1, replicas=3), pods, [node()]).current == 3
    assert only(job(gpu=1, replicas=3), pods[:1], [node()]).current == 3, "also while some of its pods are recreated"
    assert only(job(gpu=1, replicas=3), [], [node()]).current == 0, "without pods it has yet to begin"


@pytest.mark.rule("TJ:3.11")
@pytest.mark.parametrize("gpu", [0, 1])
def test_a_job_that_lost_its_record_and_its_size_keeps_both(gpu):
    """`kubectl replace -f` with the manifest of the first day: neither annotation nor replicas."""
    admitted = {"conditions": [{"type": "Admitted", "status": "True"}], "trainer": {"desired": 5}}
    one = only(job(gpu=gpu, status=admitted), [pod_of(i, "n1") for i in range(4)], [node()])
    assert (one.current, one.pods_to_create) == (5, 1)


@pytest.mark.rule("TJ:3.6")
def test_whether_it_gives_to_external_pods():
    assert not only(job()).yields
    assert only(job(scaling={"yieldToPods": True})).yields


@pytest.mark.rule("TJ:3.21")
def test_a_size_below_the_minimum_does_not_make_its_own_pods_leave():
    """Its controller keeps the minimum: if the snapshot counted one of them as leaving, its capacity would be awaited for ever."""
    pods = [pod_of(0, "n1", cpu="4"), pod_of(1, "n1", cpu="4")]
    pool = made(job(floor=2, ceiling=2, replicas=1), pods, [node(cpu="8")])
    assert pool.nodes[0].terminating == {}
    (lifted,) = allocate(pool).resizes
    assert (lifted.before, lifted.after, lifted.reason, lifted.is_released) == (1, 2, "ReachingMinimum", True)


def test_the_scaling_fields_of_the_spec():
    scaling = {"enabled": False, "step": 2, "allowedSizes": [6, 4, 99, 1], "rebalance": True, "accounting": "Requests"}
    one = only(job(scaling=scaling))
    assert (one.is_scaling_enabled, one.step, one.sizes) == (False, 2, (2, 4, 6))
    assert (one.rebalances, one.uses_limits) == (True, False)
    assert not only(job(scaling={"step": -3})).step - 1


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("high", 100), ("", 7), ("unknown", 7)],
)
def test_priorities(asked, expected):
    assert only(job(priorityClassName=asked), priorities={"high": Priority(100), "": Priority(7)}).priority == expected
    assert only(job(priorityClassName="high")).priority == 0


# --- participants -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "leaves"),
    [
        pytest.param({"suspend": True}, True, id="suspended"),
        pytest.param({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, True, id="deleted"),
        pytest.param({"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}, True, id="succeeded"),
        pytest.param({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, True, id="failed"),
        pytest.param({"status": {"conditions": [{"type": "Invalid", "status": "True"}]}}, False, id="invalid"),
        pytest.param({"floor": 7, "ceiling": 6}, False, id="with a minimum above its maximum"),
    ],
)
def test_pods_of_jobs_that_are_no_participants_are_counted(more, leaves):
    found = made(job(**more), [pod_of(0, "n1")], [node()])
    assert found.participants == ()
    (there,) = found.nodes
    assert there.used["cpu"] == 1000
    assert bool(there.terminating) == leaves


def test_a_gang_that_timed_out_waits_before_its_next_admission():
    gave_back = {
        "type": "Admitted",
        "status": "False",
        "reason": constants.GANG_TIMEOUT,
        "lastTransitionTime": timestamp(NOW),
    }
    given = job(gpu=1, record=ordered(2), status={"conditions": [gave_back], "admission": {"timeouts": 1}})
    assert made(given, now=NOW + timedelta(seconds=59)).participants == ()
    assert only(given, now=NOW + timedelta(seconds=61)).current == 0


@pytest.mark.rule("TJ:D10")
def test_jobs_of_one_name_in_two_namespaces_are_two():
    found = made([job(namespace="b"), job(namespace="a")])
    assert [each.id.namespace for each in found.participants] == ["a", "b"]


# --- where the pods are ---------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:3.17")
def test_pods_count_where_they_are():
    pods = [pod_of(0, "n1"), pod_of(1, "n2"), pod_of(2, "n1"), pod_of(3)]
    one = only(job(replicas=5), pods, [node("n1"), node("n2")])
    assert one.placed == {"n1": 2, "n2": 1}
    assert one.leaves_last == "n1", "trainer 0"
    assert one.pods_to_create == 1
    assert not one.may_grow, "its last resize is not carried out"
    assert one.may_shrink


@pytest.mark.parametrize(
    ("pods", "placed", "leaving"),
    [
        pytest.param([pod_of(i, "n1") for i in range(4)], 2, 2000, id="surplus is leaving"),
        pytest.param(
            [pod_of(0, "n1"), pod_of(1), pod_of(2, "n1")], 2, None, id="trainers without a node are removed first"
        ),
        pytest.param(
            [pod_of(0, "n1", phase="Pending"), pod_of(1, "n1", cpu="2"), pod_of(2, "n1")],
            2,
            1000,
            id="then what does not run",
        ),
        pytest.param(
            [pod_of(0, "n1"), pod_of(1, "n1"), pod_of(2, "n1", cpu="3")], 2, 3000, id="then the highest index"
        ),
        pytest.param(
            [pod_of(0, "n1"), pod_of(1, "n1", deletionTimestamp="2026-01-01T00:00:00Z")],
            1,
            1000,
            id="a terminating pod holds its capacity until it is gone, and does not count",
        ),
        pytest.param(
            [pod_of(0, "n1"), *(pod_of(i, "n1", role="evaluator") for i in range(1, 5))],
            1,
            None,
            id="pods of a role that the job's controller does not know are in use, and not about to leave",
        ),
    ],
)
@pytest.mark.rule("TJ:3.17", "FD:SEC3-5")
def test_what_is_leaving(pods, placed, leaving):
    found = made(job(replicas=2), pods, [node()])
    (one,), (there,) = found.participants, found.nodes
    assert sum(one.placed.values()) == placed
    assert there.terminating.get("cpu") == leaving
    assert there.used["cpu"] == sum(pod.requests["cpu"] for pod in pods if pod.node)
    assert there.used["pods"] == sum(1 for pod in pods if pod.node)


@pytest.mark.rule("FD:SH-B3")
@pytest.mark.parametrize(
    ("victims", "replicas", "leaving"),
    [
        pytest.param(("j-trainer-1",), 2, 1000, id="the named one"),
        pytest.param((), 2, 4000, id="without names the highest index"),
        pytest.param(("j-trainer-0",), 2, 4000, id="trainer 0 last"),
        pytest.param(("j-trainer-1",), 3, None, id="none while there are as many as wanted"),
    ],
)
def test_named_victims_leave_first(victims, replicas, leaving):
    pods = [pod_of(0, "n1"), pod_of(1, "n1"), pod_of(2, "n1", cpu="4")]
    found = made(job(replicas=replicas, record=ordered(replicas, victims=victims)), pods, [node()])
    assert found.nodes[0].terminating.get("cpu") == leaving


@pytest.mark.rule("FD:SH-B3", "TJ:3.21")
def test_at_a_size_that_a_user_wrote_the_highest_index_leaves():
    pods = [pod_of(0, "n1"), pod_of(1, "n1"), pod_of(2, "n1"), pod_of(3, "n1", cpu="4")]
    found = made(job(replicas=3, record=ordered(4, victims=("j-trainer-1", "j-trainer-2"))), pods, [node()])
    assert found.nodes[0].terminating.get("cpu") == 4000


@pytest.mark.rule("FD:TJ3-2", "FD:SH-B3")
def test_a_larger_size_in_the_spec_changes_neither_size_nor_victims():
    pods = [pod_of(0, "n1"), pod_of(1, "n1"), pod_of(2, "n1"), pod_of(3, "n1", cpu="4")]
    found = made(job(replicas=6, record=ordered(2, victims=("j-trainer-1", "j-trainer-2"))), pods, [node()])
    assert found.participants[0].current == 2
    assert found.nodes[0].terminating.get("cpu") == 2000


def test_pods_of_an_earlier_job_of_the_same_name_are_external():
    found = made(job(), [pod_of(0, "n1", uid="earlier"), pod_of(1, uid="earlier")], [node()])
    assert found.participants[0].placed == {}
    assert found.nodes[0].used["cpu"] == 1000
    assert len(found.external_pods) == 1


def test_settled_jobs_may_grow():
    pods = [pod_of(0, "n1"), pod_of(1, "n1")]
    assert only(job(), pods, [node()]).may_grow
    leaving = pod_of(2, "n1", deletionTimestamp="2026-01-01T00:00:00Z")
    assert not only(job(), [*pods, leaving], [node()]).may_grow


def test_once_a_trainer_has_ended_well_nothing_moves_any_more():
    one = only(job(replicas=5, status={"trainer": {"succeeded": 2}}), [pod_of(i, "n1") for i in (0, 1, 2)], [node()])
    assert (one.floor, one.ceiling, one.current, one.pods_to_create) == (3, 3, 3, 0)


@pytest.mark.parametrize(("said", "lost"), [("2,4", 2), ("1-3", 3), ("", 0), ("x-y,-,9-", 1), (7, 0), ("5-3", 0)])
def test_permanently_failed_trainers_lower_floor_and_ceiling(said, lost):
    one = only(job(replicas=5, scaling={"allowedSizes": [4, 6]}, status={"trainer": {"failedIndexes": said}}))
    assert (one.floor, one.ceiling, one.current) == (max(0, 2 - lost), 6 - lost, 5 - lost)
    assert one.pods_to_create == 5 - lost
    assert one.sizes == tuple(sorted({one.floor, *(size for size in (4, 6) if size <= one.ceiling)}))


@pytest.mark.parametrize(("policy", "bounds"), [("Gang", (1, 2, 1)), ("Optimistic", (0, 2, 1))])
def test_a_gang_whose_minimum_failed_permanently_keeps_one_trainer(policy, bounds):
    """Its master and its parameter servers run on, so the plan must not count their capacity as free."""
    spec = {"floor": 1, "ceiling": 3, "replicas": 2, "record": ordered(2), "startPolicy": policy}
    one = only(job(**spec, status={"trainer": {"failedIndexes": "1"}}))
    assert (one.floor, one.ceiling, one.current) == bounds


def test_trainer_0_leaves_last_and_trainers_that_are_not_ready_leave_first():
    pods = [pod_of(0, "n0"), pod_of(1, "n1"), pod_of(2, "n2"), pod_of(3, "n3")]
    pods[2:] = [msgspec.structs.replace(pod, is_ready=True) for pod in pods[2:]]
    pools = SnapshotBuilder(SharingConfig())
    pool = pools.build([job(replicas=4)], pods, [node(f"n{i}") for i in range(4)], now=NOW)
    (participant,), (trainers,) = pool.participants, pools.trainers.values()
    assert [pod.node for pod in trainers.kept] == ["n1", "n3", "n2", "n0"]
    assert participant.leaves_last == "n0"


# --- cores and companions -----------------------------------------------------------------------------------------------------


@pytest.mark.rule("TJ:3.3", "TJ:3.4")
def test_master_and_fixed_pservers_are_the_core():
    one = only(
        job(master={}, pserver={"min-instance": 2, "max-instance": 5}),
        [pod_of(0, "n1", role="pserver"), pod_of(0, role="master")],
        [node()],
    )
    by_name = {core.name: core for core in one.core}
    assert by_name["master"] == Core("master", role_shape(job(master={}), "master"), 1, 1)
    assert (by_name["pserver"].count, by_name["pserver"].missing) == (2, 1)
    assert (by_name["pserver"].placed, by_name["master"].placed) == ({"n1": 1}, {})
    assert by_name["master"].shape.requests == {"cpu": 1100, "memory": 628 << 20, "pods": 1}
    assert by_name["master"].shape.limits == {"cpu": 2500, "memory": GI + (512 << 20)}
    assert one.companion is None


@pytest.mark.rule("TJ:3.4")
def test_pservers_by_ratio_come_with_the_trainers():
    pserver = {"min-instance": 1, "max-instance": 4, "scaling": {"mode": "Ratio", "trainersPerPserver": 2}}
    one = only(
        job(replicas=5, ceiling=9, pserver=pserver),
        [pod_of(0, "n1", role="pserver"), pod_of(1, "n1", role="pserver")],
        [node()],
    )
    assert one.core == ()
    assert (one.companion.per, one.companion.floor, one.companion.ceiling) == (2, 1, 4)
    assert (one.companion.current, one.companion.placed) == (3, {"n1": 2})
    assert only(job(gpu=1, pserver=pserver)).companion.current == 0, "a gang that has not begun has none"


TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "nodeSelector": {"disk": "ssd"},
        "overhead": {"cpu": "100m"},
        "initContainers": [{"name": "get", "image": "i", "resources": {"requests": {"memory": "9Gi"}}}],
        "containers": [
            {"name": "trainer", "resources": {"requests": {"cpu": "3"}}},
            {"name": "log", "image": "i", "resources": {"requests": {"cpu": "250m"}}},
        ],
    },
}


@pytest.mark.parametrize("role", ["master", "pserver", "trainer"])
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="plain"),
        pytest.param({"gpu": 2}, id="GPUs"),
        pytest.param({"framework": "torchrun"}, id="torchrun"),
        pytest.param({"host_network": True, "schedulerName": "s", "priorityClassName": "p"}, id="host network"),
    ],
)
def test_what_is_planned_is_what_is_built(role, spec):
    given = job_manifest("j", 1, 3, master={}, pserver={"min-instance": 1}, **spec)
    for part in ("trainer", "pserver", "master"):
        given["spec"][part]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
        given["spec"][part]["nodeSelector"] = {"zone": "a"}
        given["spec"][part]["template"] = TEMPLATE
    parsed = TrainingJob.parse(given)
    built = build_pod(parsed, role, 0, size_for(parsed, 2), JobConfig())
    planned = role_shape(parsed, role)
    assert planned == shape_from(pod_shape(built["spec"]))
    assert planned.requests["memory"] == 9 * GI
    assert planned.constraints.node_selector == (("disk", "ssd"), ("zone", "a"))
    assert planned.constraints.tolerations == (PodToleration("gpu", "Exists"),)


@pytest.mark.rule("TJ:3.18")
def test_the_old_name_of_gpus_is_read_as_the_new_one():
    given = job_manifest("j", 1, 3)
    given["spec"]["trainer"]["resources"] = {"limits": {constants.OLD_GPU: 1}, "requests": {"cpu": "500m"}}
    one = only(TrainingJob.parse(given))
    assert one.is_gang
    assert one.shape.requests == {"cpu": 500, constants.GPU: 1, "pods": 1}


def test_invalid_quantities_request_nothing():
    given = job_manifest("j", 1, 3, cpu="lots")
    assert only(TrainingJob.parse(given)).shape.requests == {"pods": 1}


# --- other objects ------------------------------------------------------------------------------------------------------------


def test_nodes_as_they_are():
    found = made(
        [],
        [external_pod("1", "n1"), external_pod("500m", "n1"), external_pod("1", "gone")],
        [
            node("n1", labels={"zone": "a"}, taints=[{"key": "k", "effect": "NoSchedule"}]),
            node("n2", unschedulable=True),
            node("n3", conditions=[{"type": "Ready", "status": "Unknown"}]),
        ],
    )
    assert [(each.name, each.is_usable) for each in found.nodes] == [("n1", True), ("n2", False), ("n3", False)]
    assert found.nodes[0].used == {"cpu": 1500, "pods": 2}
    assert found.nodes[0].labels == {"zone": "a"}
    assert found.nodes[0].taints == (Taint("k", "", "NoSchedule"),)


def test_a_node_that_is_away_keeps_only_the_taints_it_will_still_have():
    taints = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "dedicated", "effect": "NoSchedule"},
    ]
    found = made([], [], [node("away", unschedulable=True, taints=taints), node("back", taints=taints)])
    keys = {each.name: [taint.key for taint in each.taints] for each in found.nodes}
    assert keys == {"away": ["dedicated"], "back": ["node.kubernetes.io/unschedulable", "dedicated"]}


@pytest.mark.rule("TJ:7.4", "SC:S25")
def test_what_a_cordoned_node_could_hold_is_not_impossible():
    taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    nodes = [node("small", cpu="500m"), node("away", unschedulable=True, taints=taints)]
    (waiting,) = allocate(made(job(startPolicy="Gang"), [], nodes)).waiting
    assert waiting.reason == INSUFFICIENT


def test_pods_of_others_that_wait():
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
            }
        }
    }
    found = made(
        [],
        [
            external_pod("1", metadata={"creationTimestamp": "2026-01-02T00:00:00Z"}),
            external_pod("1", metadata={"creationTimestamp": "2026-01-01T00:00:00Z"}),
            external_pod("1", priority=9, affinity=affinity),
            external_pod("1", schedulingGates=[{"name": "wait"}]),
            external_pod("1", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        ],
        [node()],
    )
    important, two = found.external_pods
    assert (important.count, important.priority) == (1, 9)
    assert important.shape.constraints.terms == ((NodeRequirement("zone", "Exists"),),)
    assert (two.count, two.created_at) == (2, "2026-01-01T00:00:00Z")


@pytest.mark.rule("TJ:3.6")
def test_unschedulable_external_pods_are_grouped_and_named_after_the_oldest():
    def web(name, day, **status):
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        return capacity_pod_from_object(
            {
                "metadata": {"namespace": "web", "name": name, "creationTimestamp": f"2026-01-0{day}T00:00:00Z"},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {"conditions": [refused], **status},
            }
        )

    pods = [web("b", 3), web("a", 2), web("new", 4, conditions=[]), web("preempts", 5, nominatedNodeName="n1")]
    refused, others = made([], pods, [node()]).external_pods
    assert (refused.is_unschedulable, refused.count, refused.name) == (True, 2, "web/a")
    assert (others.is_unschedulable, others.count, others.name) == (False, 2, "web/new")


@pytest.mark.rule("TJ:3.5")
def test_jobs_are_charged_by_limits_and_others_by_requests():
    pods = [pod_of(0, "n1"), pod_of(1), external_pod("2", "n1"), external_pod("5", "cordoned"), pod_of(2, "cordoned")]
    given = job_manifest("j", 4, 6)
    given["spec"]["trainer"]["resources"] = {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}
    given["metadata"] = {"name": "j", "namespace": "ns", "uid": UID}
    found = made(TrainingJob.parse(given), pods, [node(), node("cordoned", unschedulable=True)])
    assert found.nodes[1].charged["cpu"] == 1000 + 2000, "a pod by its limits, another workload's by its requests"


def test_options_come_from_the_settings():
    config = SharingConfig(
        max_load_percent={"cpu": 90},
        gpus=frozenset({"x.com/gpu"}),
        rebalance_gap=Fraction(1, 5),
        victims_per_trainer=3,
    )
    options = made(config=config).options
    assert (options.max_load_percent, options.gpus) == ({"cpu": 90}, {"x.com/gpu"})
    assert (options.rebalance_gap, options.victims_per_instance) == (Fraction(1, 5), 3)


def test_the_settings_have_the_planners_defaults():
    assert build_snapshot([], [], [], config=SharingConfig(), now=NOW).options == AllocationOptions()


@pytest.mark.rule("FD:SH-B9")
def test_without_reservations_every_one_has_lapsed():
    config = SharingConfig(reservation_s=0.0)
    (one,) = build_snapshot([job(gpu=1)], [], [node()], config=config, now=NOW).participants
    assert one.is_reservation_lapsed


def quota(hard, used=None, **spec):
    return capacity_quota_from_object(
        {
            "metadata": {"name": "q", "namespace": "ns"},
            "spec": {"hard": hard, **spec},
            "status": {"hard": hard, "used": used or {}},
        }
    )


@pytest.mark.rule("TJ:3.14")
@pytest.mark.parametrize(
    ("given", "free"),
    [
        pytest.param(
            quota({"requests.cpu": "9"}, {"requests.cpu": "3"}), {"cpu": 4000}, id="less what is still to be made"
        ),
        pytest.param(quota({"cpu": "9", "requests.cpu": "8"}), {"cpu": 6000}, id="the narrower of two names"),
        pytest.param(quota({"limits.cpu": "9"}), {"limits.cpu": 7000}, id="limits by themselves"),
        pytest.param(quota({"pods": "9", "count/pods": "7"}), {"pods": 5}, id="numbers of pods"),
        pytest.param(quota({"requests.nvidia.com/gpu": "4"}), {"nvidia.com/gpu": 4}, id="GPUs"),
        pytest.param(
            quota({"services": "4", "requests.storage": "1Gi", "count/jobs.batch": "1"}), {}, id="nothing else"
        ),
        pytest.param(
            quota({"pods": "9"}, scopes=["NotTerminating"]), {"pods": 7}, id="a scope that pods of jobs are in"
        ),
        pytest.param(quota({"pods": "9"}, scopes=["BestEffort"]), None, id="a scope that they are not in"),
        pytest.param(quota({"pods": "9"}, scopes=["Terminating"]), None, id="nor this"),
        pytest.param(
            quota(
                {"pods": "9"},
                scopeSelector={
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]
                },
            ),
            {"pods": 7},
            id="their PriorityClass",
        ),
        pytest.param(
            quota(
                {"pods": "9"},
                scopeSelector={
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["low"]}]
                },
            ),
            None,
            id="another PriorityClass",
        ),
    ],
)
def test_quotas(given, free):
    found = made(job(priorityClassName="high"), quotas=[given]).quotas
    assert [each.free for each in found] == ([] if free is None else [free])


# --- rests -----------------------------------------------------------------------------------------------------------------------


def resized(seconds_ago, reason="Growing"):
    return ordered(2, ResizeNote(NOW - timedelta(seconds=seconds_ago), 3, 2, reason))


@pytest.mark.parametrize(
    ("more", "may"),
    [
        pytest.param({"record": resized(10)}, (False, False), id="both cool down"),
        pytest.param({"record": resized(40)}, (True, True), id="and have cooled down"),
        pytest.param(
            {"record": resized(10), "scaling": {"growCooldownSeconds": 5}},
            (True, False),
            id="growing and shrinking apart",
        ),
        pytest.param(
            {"record": resized(10), "scaling": {"shrinkCooldownSeconds": 0}},
            (False, True),
            id="none by default",
        ),
        pytest.param({"record": resized(1, "Admitted")}, (True, True), id="a beginning is no resize"),
        pytest.param({"record": ordered(4), "replicas": 2}, (False, False), id="a request counts before it is noted"),
        pytest.param(
            {"scaling": {"minRuntimeSeconds": 60}, "status": {"startTime": timestamp(NOW - timedelta(seconds=30))}},
            (True, False),
            id="not a donor within its minimum run time",
        ),
        pytest.param(
            {"scaling": {"minRuntimeSeconds": 60}, "status": {"startTime": timestamp(NOW - timedelta(seconds=90))}},
            (True, True),
            id="but after it",
        ),
        pytest.param({"scaling": {"minRuntimeSeconds": 60}}, (True, False), id="which begins when it runs"),
        pytest.param({"record": resized(-10)}, (False, False), id="by a clock that is 10 s ahead"),
        pytest.param({"record": resized(-3600)}, (True, True), id="by a clock that was an hour ahead: ignored"),
        pytest.param({"record": resized(-3600, UNSCHEDULABLE)}, (True, True), id="also where it was in vain"),
    ],
)
@pytest.mark.rule("TJ:7.10", "RM:F9")
def test_cooldowns(more, may):
    one = only(job(**{"replicas": 2, **more}), [pod_of(0, "n1"), pod_of(1, "n1")], [node()])
    assert (one.may_grow, one.may_shrink) == may


@pytest.mark.parametrize(
    ("seconds_ago", "reason", "scaling", "grows_soon"),
    [
        pytest.param(10, "Growing", {}, True, id="a cooldown ends within a minute"),
        pytest.param(40, "Growing", {}, False, id="it has ended"),
        pytest.param(10, "Growing", {"growCooldownSeconds": 600}, False, id="it is long"),
        pytest.param(550, "Growing", {"growCooldownSeconds": 600}, True, id="the last minute of a long one"),
        pytest.param(10, UNSCHEDULABLE, {}, False, id="its last growth found no node"),
    ],
)
@pytest.mark.rule("TJ:7.10")
def test_a_job_in_a_cooldown_grows_soon(seconds_ago, reason, scaling, grows_soon):
    record = resized(seconds_ago, reason)
    one = only(job(replicas=2, record=record, scaling=scaling), [pod_of(0, "n1"), pod_of(1, "n1")], [node()])
    assert one.grows_soon is grows_soon


@pytest.mark.rule("FD:TJ3-2")
@pytest.mark.parametrize(
    ("replicas", "record", "expected"),
    [
        pytest.param(4, {}, (True, 4, False), id="a request ends the cooldown, and takes nothing from others"),
        pytest.param(9, {}, (True, 6, False), id="at most up to the maximum"),
        pytest.param(2, {}, (False, None, True), id="no request"),
        pytest.param(4, {"request": RequestNote(NOW - timedelta(seconds=20), 4, 2)}, (False, None, True), id="a pause"),
        pytest.param(4, {"request": RequestNote(NOW - timedelta(seconds=31), 4, 2)}, (True, 4, False), id="after it"),
    ],
)
def test_a_job_whose_size_is_requested(replicas, record, expected):
    one = only(
        job(replicas=replicas, record=replace(resized(5), **record)), [pod_of(0, "n1"), pod_of(1, "n1")], [node()]
    )
    assert one.current == 2
    assert (one.may_grow, one.grows_to, one.rebalances) == expected


@pytest.mark.rule("FD:TJ3-2")
def test_growth_that_a_client_undoes_waits_longer_each_time():
    for times, may_grow in ((2, True), (3, False)):
        record = replace(resized(50, "Requested"), request=RequestNote(NOW - timedelta(seconds=50), 2, times))
        assert only(job(replicas=2, record=record), [pod_of(0, "n1"), pod_of(1, "n1")], [node()]).may_grow is may_grow


@pytest.mark.rule("FD:SH-B9")
@pytest.mark.parametrize(
    ("since_s", "is_lapsed", "changes_in_s"),
    [
        pytest.param(None, False, None, id="one that never had any may have one"),
        pytest.param(0, False, 600, id="it lasts ten minutes"),
        pytest.param(599, False, 1, id="and not a second less"),
        pytest.param(600, True, 4800, id="then it has none for eight times as long"),
        pytest.param(5400, False, 600, id="then it may have one again"),
        pytest.param(6000, True, 4800, id="and so on"),
        pytest.param(5400 * 300_000 + 1, False, 599, id="also after fifty years"),
        pytest.param(-30, False, 600, id="a clock that was set back by half a minute makes it last longer"),
        pytest.param(-3600, False, None, id="by an hour: it counts as never"),
    ],
)
def test_a_reservation_lapses_and_returns(since_s, is_lapsed, changes_in_s):
    since = None if since_s is None else NOW - timedelta(seconds=since_s)
    record = SharingRecord(UID, 0, waiting=WaitingNote("InsufficientGPU", "", reserved_since=since))
    snapshots = SnapshotBuilder(SharingConfig())
    (one,) = snapshots.build([job(gpu=1, record=record)], [], [node()], now=NOW).participants
    assert one.is_reservation_lapsed == is_lapsed
    assert snapshots.changes_at == (None if changes_in_s is None else NOW + timedelta(seconds=changes_in_s))


def ago(seconds):
    return timestamp(NOW - timedelta(seconds=seconds))


@pytest.mark.rule("SC:S25")
@pytest.mark.parametrize(
    ("pods", "count"),
    [
        pytest.param([pod_of(0, "n1"), pod_of(1, creationTimestamp=ago(21))], 1, id="twenty seconds without a node"),
        pytest.param([pod_of(0, "n1"), pod_of(1, creationTimestamp=ago(19))], 0, id="not so long"),
        pytest.param(
            [pod_of(0, creationTimestamp=ago(21)), pod_of(1, creationTimestamp=ago(12))],
            2,
            id="created soon after such a pod",
        ),
        pytest.param(
            [pod_of(0, creationTimestamp=ago(21)), pod_of(1, creationTimestamp=ago(9))],
            1,
            id="created long after such a pod",
        ),
        pytest.param([pod_of(0, "n1"), pod_of(1, "n1", creationTimestamp=ago(99))], 0, id="with a node"),
        pytest.param([pod_of(0), pod_of(1)], 0, id="without a timestamp"),
        pytest.param(
            [pod_of(0, "n1"), pod_of(1, creationTimestamp=ago(99), deletionTimestamp=ago(1))], 0, id="already leaving"
        ),
        pytest.param([pod_of(0, role="master", creationTimestamp=ago(99))], 0, id="trainers alone"),
    ],
)
def test_trainers_without_a_node_for_long_are_counted(pods, count):
    assert only(job(replicas=2), pods, [node()]).unplaced_for_long == count


@pytest.mark.rule("SC:S25")
def test_a_pod_becomes_pending_for_long_without_an_event():
    pools, one = SnapshotBuilder(SharingConfig()), job(replicas=3)
    pods = [pod_of(0, "n1"), pod_of(1, "n1"), pod_of(2, creationTimestamp=ago(10))]
    (before,) = pools.build([one], pods, [node()], now=NOW).participants
    assert (before.unplaced_for_long, pools.changes_at) == (0, NOW + timedelta(seconds=11))
    (after,) = pools.build([one], pods, [node()], now=pools.changes_at).participants
    assert (after.unplaced_for_long, pools.changes_at) == (1, None)


def test_the_order_of_what_comes_in_means_nothing():
    jobs = [job(f"j{i}", replicas=3, metadata={"uid": f"u{i}"}) for i in range(3)]
    pods = [pod_of(i, f"n{(i + k) % 2}", job=f"j{k}", uid=f"u{k}") for i in range(4) for k in range(3)]
    pods += [external_pod("1"), external_pod("2"), external_pod("1", "n1")]
    nodes = [node("n0"), node("n1")]
    assert made(jobs, pods, nodes) == made(jobs[::-1], pods[::-1], nodes[::-1])
