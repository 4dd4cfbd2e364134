"""Which groups are blocked, since when, and the capacity that remains."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from raytide.api.autoscaler_decision import Backoff
from raytide.api.pod import PodCondition, PodView
from raytide.autoscaler.model import COUNTABLE, NodeStatus, NodeType, RayNode, Status, amounts_of
from raytide.autoscaler.state.group_availability import AvailabilityInputs, Limits, assess_availability, delay_s
from raytide.autoscaler.state.instance_lifecycle import TimeLimits, Timers
from raytide.autoscaler.state.instances import instances
from raytide.autoscaler.state.node_types import NodeTypes
from raytide.autoscaler.state.observation import InstanceInputs
from raytide.autoscaler.state.replica_failures import rejection_of
from raytide.diagnosis.model import Diagnosis
from raytide.diagnosis.render import text_of
from support.builders import head, pending, pod, waiting

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CPU4 = amounts_of({"CPU": 4})
GROUPS = ("spot", "on-demand")
TYPES = NodeTypes(tuple(NodeType(name, max_nodes=20, resources=CPU4) for name in GROUPS))
HEAD = head()
HEAD_NODE = RayNode("h1", NodeStatus.IDLE, HEAD.name, "headgroup")
SLICES = NodeTypes((NodeType("spot", max_nodes=20, resources=CPU4, num_of_hosts=2),))


class Scenario:
    """One cluster in consecutive passes; each returns the limits."""

    def __init__(self, types: NodeTypes = TYPES) -> None:
        self.types = types
        self.timers = Timers()
        self.backoffs: dict[str, Backoff | None] = {}
        self.reasons: dict[str, tuple[Diagnosis, ...]] = {}

    def assess(
        self, at_s: float, *things: PodView | RayNode, desired_hosts: dict[str, int] | None = None, **more: Any
    ) -> Limits:
        pods = [thing for thing in things if isinstance(thing, PodView)]
        nodes = [thing for thing in things if isinstance(thing, RayNode)]
        inputs = InstanceInputs([HEAD, *pods], [HEAD_NODE, *nodes], self.types, 1000.0 + at_s, desired_hosts or {})
        found = instances(inputs, self.timers)
        evidence = AvailabilityInputs(
            NOW + timedelta(seconds=at_s), 1000.0 + at_s, more.pop("status", {}), self.backoffs, self.reasons
        )
        limits = assess_availability(found, self.types, evidence, **more)
        self.timers = found.timers
        self.backoffs = dict(limits.backoffs)
        self.reasons = {name: (blocked.diagnosis,) for name, blocked in limits.blocked.items()}
        return limits

    def restart(self) -> None:
        """The process loses its memory; the record stays."""
        self.timers = Timers()


def spot(name: str, **fields: Any) -> PodView:
    return pending(name, **{"group": "spot", **fields})


def no_node(name: str, reason: str = "Unschedulable") -> PodView:
    unschedulable = PodCondition("False", reason, "0/3 nodes are available")
    return spot(name, scheduled=unschedulable, creation_timestamp="2026-01-01T12:00:00Z")


def at_work(name: str, group: str = "spot", **fields: Any) -> tuple[PodView, RayNode]:
    ray = RayNode(f"id-{name}", NodeStatus.IDLE, name, group, CPU4, CPU4)
    return pod(name, group=group, **fields), ray


def most(limits: Limits, name: str = "spot") -> int:
    """How many nodes the group may have now."""
    kind = next(kind for kind in limits.types if kind.name == name)
    sound = sum(i.node_type == name and i.status in COUNTABLE for i in limits.instances)
    return kind.max_nodes if kind.available is None else min(kind.max_nodes, sound + kind.available)


def names_of(found: Any) -> list[str]:
    return [instance.instance_id for instance in found if not instance.is_head]


QUOTA = 'pods "demo-spot-worker-*" is forbidden: exceeded quota: q'


def rejected(group: str = "spot", reason: str = "QuotaExceeded") -> dict[str, Any]:
    """A status of Raytide's operator."""
    return {"diagnoses": [{"reason": reason, "group": group, "message": QUOTA, "count": 2}]}


def of_kuberay(message: str = QUOTA, reason: str = "FailedCreateWorkerPod", status: str = "True") -> dict[str, Any]:
    """A status of KubeRay, whose condition has the message alone."""
    return {"conditions": [{"type": "ReplicaFailure", "status": status, "reason": reason, "message": message}]}


# --- what blocks a group, and after how long -------------------------------------------------------------------------


@pytest.mark.rule("AS:B-16", "SC:S2", "SC:S13")
@pytest.mark.parametrize(
    ("thing", "limit_s", "reason"),
    [
        pytest.param(no_node("a"), 8, "Unschedulable", id="no node fits: 8 s"),
        pytest.param(no_node("a", "SchedulingGated"), 8, "SchedulingGated", id="gated: 8 s"),
        pytest.param(
            spot("a", node_name="n", containers=(waiting("ray", "ImagePullBackOff"),)),
            300,
            "ImagePullFailed",
            id="image: 300 s",
        ),
        pytest.param(
            pod("a", group="spot", containers=(waiting("ray", "CrashLoopBackOff"),)),
            300,
            "CrashLoop",
            id="crash loop: 300 s",
        ),
        pytest.param(
            spot("a", node_name="n", containers=(waiting("ray", "CreateContainerConfigError"),)),
            300,
            "ContainerConfigError",
            id="configuration: 300 s",
        ),
        pytest.param(spot("a"), 120, "NotScheduled", id="no scheduler looks at it: 120 s"),
        pytest.param(
            spot("a", node_name="n", init_containers=(waiting("wait-gcs-ready", "PodInitializing"),)),
            3600,
            "NotInitialized",
            id="an init container that waits for ever: 3,600 s",
        ),
        pytest.param(pod("a", group="spot"), 300, "NeverRegistered", id="it runs, and Ray does not register: 300 s"),
    ],
)
def test_a_group_is_blocked_when_its_pod_does_not_come(thing, limit_s, reason):
    scenario = Scenario()
    scenario.assess(0, thing)
    still = scenario.assess(limit_s, thing)
    assert (still.blocked, most(still), names_of(still.instances)) == ({}, 20, ["a"]), "the limit is strict"
    late = scenario.assess(limit_s + 0.1, thing)
    assert late.blocked["spot"].diagnosis.reason == reason
    assert "pod a" in late.blocked["spot"].diagnosis.message
    assert (most(late), names_of(late.instances), names_of(late.stuck)) == (0, [], ["a"])
    assert most(late, "on-demand") == 20, "the others are not touched"


@pytest.mark.rule("SC:S5")
def test_nodes_that_take_their_time_are_not_blocked():
    scenario = Scenario()
    slow = [spot(f"w{index}", node_name="n") for index in range(10)]
    assert scenario.assess(0, *slow).blocked == {}
    assert scenario.assess(180, *slow).blocked == {}


def test_the_wait_for_a_node_is_not_the_wait_for_ray():
    scenario = Scenario()
    scenario.assess(0, spot("a"))
    scenario.assess(100, spot("a"))
    scenario.assess(101, spot("a", node_name="n"))
    assert scenario.assess(400, spot("a", node_name="n")).blocked == {}
    scenario.assess(402, pod("a", group="spot"))
    assert scenario.assess(702, pod("a", group="spot")).blocked == {}
    assert scenario.assess(703, pod("a", group="spot")).blocked["spot"].diagnosis.reason == "NeverRegistered"


@pytest.mark.rule("SC:S2", "SC:S3")
def test_a_rejected_create_blocks_the_group_at_once_and_drops_its_requested_replicas():
    limits = Scenario().assess(0, *at_work("a"), desired_hosts={"spot": 5}, status=rejected())
    assert (limits.blocked["spot"].diagnosis.reason, limits.blocked["spot"].is_capacity_missing) == (
        "QuotaExceeded",
        True,
    )
    assert (most(limits), names_of(limits.instances), len(limits.stuck)) == (1, ["a"], 4)


def test_requested_replicas_of_a_blocked_group_are_no_capacity():
    scenario = Scenario()
    scenario.assess(0, no_node("a"), desired_hosts={"spot": 3})
    limits = scenario.assess(11, no_node("a"), desired_hosts={"spot": 3})
    assert (most(limits), len(limits.stuck), names_of(limits.instances)) == (0, 3, [])


def test_a_rejection_that_names_no_current_group_blocks_no_group():
    assert Scenario().assess(0, *at_work("a"), desired_hosts={"spot": 1}, status=rejected()).blocked == {}


@pytest.mark.rule("FD:ST3-2")
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        pytest.param(rejected(), "QuotaExceeded", id="quota"),
        pytest.param(rejected(reason="CreationForbidden"), "CreationForbidden", id="a webhook"),
        pytest.param(rejected("other"), None, id="another group"),
        pytest.param(rejected(reason="Unschedulable"), None, id="a cause of pods that exist"),
        pytest.param(
            {**rejected("other"), **of_kuberay("group other: a; group spot: exceeded quota")},
            None,
            id="words of a message beside stored diagnoses",
        ),
        pytest.param(
            {"diagnoses": [*rejected("other")["diagnoses"], *rejected()["diagnoses"]]}, "QuotaExceeded", id="two"
        ),
        pytest.param(of_kuberay(), "QuotaExceeded", id="KubeRay's message names the pod"),
        pytest.param(of_kuberay(QUOTA.replace("spot", "other")), None, id="KubeRay's of another group"),
        pytest.param(
            of_kuberay('pods "demo-spot-worker-x" is forbidden', "FailedDeleteWorkerPod"), None, id="a rejected delete"
        ),
        pytest.param(of_kuberay(status="False"), None, id="a condition that does not hold"),
        pytest.param({"conditions": [{"type": "ReplicaFailure", "status": "True"}]}, None, id="no message"),
        pytest.param({"conditions": 5, "diagnoses": [5, {}, {"reason": 5}]}, None, id="no lists of objects"),
        pytest.param({}, None, id="nothing"),
    ],
)
def test_rejections_are_read_from_the_status(status, reason):
    found = rejection_of(status, "spot")
    assert (found.reason if found else None) == reason


def test_a_group_without_created_pods_is_blocked_only_while_others_get_theirs():
    scenario = Scenario()
    scenario.assess(0, desired_hosts={"spot": 2, "on-demand": 1})
    assert scenario.assess(130, desired_hosts={"spot": 2, "on-demand": 1}).blocked == {}, (
        "no group gets any: it is the operator"
    )
    other = pending("b", group="on-demand")
    assert (
        scenario.assess(131, other, desired_hosts={"spot": 2, "on-demand": 1}).blocked["spot"].diagnosis.reason
        == "NoPodCreated"
    )


@pytest.mark.rule("FD:AS-A18")
def test_progress_of_pods_created_before_the_wait_does_not_block_a_group():
    scenario, desired_hosts = Scenario(), {"spot": 2, "on-demand": 1}
    scenario.assess(0, pending("b", group="on-demand"), desired_hosts=desired_hosts)
    limits = scenario.assess(130, *at_work("b", "on-demand"), desired_hosts=desired_hosts)
    assert limits.blocked == {}, (
        "it came before the waiting began; its registration does not show that the operator creates pods"
    )


@pytest.mark.rule("FD:AS-A19")
def test_a_clock_that_differs_from_the_api_servers_clears_no_back_off():
    """Ours is an hour behind: every pod is younger than the back-off, to the look of it."""
    scenario, created = Scenario(), "2026-01-01T13:00:00Z"
    old = at_work("old", creation_timestamp="2026-01-01T12:59:00Z")
    scenario.assess(0, *old, spot("a", scheduled=PodCondition("False", "Unschedulable"), creation_timestamp=created))
    scenario.assess(11, *old, spot("a", scheduled=PodCondition("False", "Unschedulable"), creation_timestamp=created))
    scenario.restart()
    assert scenario.assess(12, *old).backoffs["spot"].n == 1
    assert scenario.assess(60, *old, *at_work("c", creation_timestamp="2026-01-01T13:00:45Z")).backoffs == {}


def test_a_group_whose_pods_are_created_slowly_is_not_blocked():
    scenario = Scenario()
    for index in range(10):
        some = [spot(f"w{i}", node_name="n") for i in range(index)]
        limits = scenario.assess(20 * index, pending(f"o{index}", group="on-demand"), *some, desired_hosts={"spot": 50})
        assert limits.blocked == {}


# --- whose fault it is -----------------------------------------------------------------------------------------------


def test_one_bad_pod_among_others_that_register_is_replaced_and_blocks_no_other():
    scenario = Scenario()
    bad = spot("bad", node_name="n", containers=(waiting("ray", "ErrImagePull"),))
    scenario.assess(0, bad)
    scenario.assess(30, bad, spot("good", node_name="n"))
    scenario.assess(50, bad, *at_work("good"))
    limits = scenario.assess(301, bad, *at_work("good"))
    assert (limits.blocked, limits.backoffs, names_of(limits.stuck), most(limits)) == ({}, {}, ["bad"], 20)


def test_an_unschedulable_pod_blocks_the_group_even_if_others_run():
    scenario = Scenario()
    scenario.assess(0, no_node("full"))
    scenario.assess(5, no_node("full"), spot("good", node_name="n"))
    scenario.assess(9, no_node("full"), *at_work("good"))
    assert most(scenario.assess(11, no_node("full"), *at_work("good"))) == 1


@pytest.mark.rule("SC:S13")
def test_pods_that_end_before_they_register_block_their_group():
    scenario = Scenario()
    scenario.assess(0, spot("a", node_name="n"))
    limits = scenario.assess(5, spot("a", phase="Failed"))
    assert (limits.blocked["spot"].diagnosis.reason, most(limits)) == ("CrashLoop", 0)
    assert "ended before its Ray node registered" in limits.blocked["spot"].diagnosis.message


def test_three_early_failures_block_a_working_group_and_fewer_do_not():
    scenario = Scenario()
    for index in range(3):
        scenario.assess(10 * index, *at_work("good"), spot(f"w{index}", node_name="n"))
        limits = scenario.assess(10 * index + 5, *at_work("good"), spot(f"w{index}", phase="Failed"))
        assert ("spot" in limits.blocked) is (index == 2)


@pytest.mark.rule("AS:B-8")
def test_a_host_that_does_not_come_makes_its_replica_no_capacity_unless_others_of_it_work():
    scenario = Scenario(SLICES)
    hosts = [
        spot("a0", replica_name="a", node_name="n"),
        spot("a1", replica_name="a", scheduled=PodCondition("False", "Unschedulable", "")),
        *at_work("b0", replica_name="b"),
        spot("b1", replica_name="b", scheduled=PodCondition("False", "Unschedulable", "")),
    ]
    scenario.assess(0, *hosts)
    limits = scenario.assess(11, *hosts)
    assert (names_of(limits.stuck), names_of(limits.instances)) == (["a0", "a1", "b1"], ["b0"])


# --- back-off --------------------------------------------------------------------------------------------------------


def test_the_delay_doubles_up_to_five_minutes():
    assert [delay_s(n) for n in (1, 2, 3, 4, 5, 99)] == [30, 60, 120, 240, 300, 300]


def blocked_scenario() -> Scenario:
    scenario = Scenario()
    scenario.assess(0, no_node("a"), no_node("b"))
    limits = scenario.assess(11, no_node("a"), no_node("b"))
    assert limits.backoffs == {"spot": Backoff(1, NOW + timedelta(seconds=41))}
    return scenario


def test_a_blocked_group_stays_in_backoff_and_keeps_its_reason():
    limits = blocked_scenario().assess(20)
    assert (most(limits), limits.backoffs["spot"].n, limits.requeue_after_s) == (0, 1, 21)
    assert (limits.blocked["spot"].diagnosis.reason, limits.blocked["spot"].is_capacity_missing) == (
        "Unschedulable",
        True,
    )


def test_without_a_recorded_reason_the_detail_has_the_time_of_the_next_retry():
    scenario = blocked_scenario()
    scenario.reasons = {}
    assert "12:00:41" in text_of(scenario.assess(20).blocked["spot"].diagnosis)


def test_when_it_has_rested_one_replica_is_tried():
    limits = blocked_scenario().assess(41)
    assert (limits.blocked, most(limits)) == ({}, 1)


@pytest.mark.rule("AS:B-8")
def test_a_replica_of_several_hosts_is_tried_whole():
    scenario = Scenario(SLICES)
    scenario.backoffs = {"spot": Backoff(1, NOW)}
    assert most(scenario.assess(1)) == 2


def test_after_the_backoff_a_pending_pod_counts_as_the_retry():
    scenario = blocked_scenario()
    assert (
        most(scenario.assess(41, *at_work("r", creation_timestamp="2026-01-01T11:00:00Z"), spot("p", node_name="n")))
        == 2
    )
    assert (
        most(scenario.assess(42, *at_work("r", creation_timestamp="2026-01-01T11:00:00Z"), desired_hosts={"spot": 2}))
        == 2
    )


def test_a_failed_retry_doubles_the_backoff():
    scenario = blocked_scenario()
    scenario.assess(41, desired_hosts={"spot": 1})
    scenario.assess(43, no_node("c"))
    assert scenario.assess(50, no_node("c")).blocked == {}
    limits = scenario.assess(54, no_node("c"))
    assert limits.backoffs == {"spot": Backoff(2, NOW + timedelta(seconds=114))}
    assert (most(limits), names_of(limits.stuck)) == (0, ["c"])


def test_during_the_backoff_an_unschedulable_pod_is_stuck_at_once():
    assert names_of(blocked_scenario().assess(20, no_node("c")).stuck) == ["c"]


@pytest.mark.parametrize(
    "created", ["2026-01-01T12:00:45Z", "2026-01-01T11:59:00Z"], ids=["a new pod", "one that waited"]
)
def test_a_worker_that_registers_clears_it(created):
    scenario = blocked_scenario()
    scenario.assess(42, spot("c", node_name="n", creation_timestamp=created))
    limits = scenario.assess(50, *at_work("c", creation_timestamp=created))
    assert (limits.backoffs, limits.blocked, most(limits)) == ({}, {}, 20)


@pytest.mark.rule("FD:REL-11")
@pytest.mark.parametrize("created", ["11:00:00", "12:00:00"], ids=["an hour", "in the same second as the failed ones"])
def test_a_worker_that_was_there_before_clears_nothing(created):
    scenario = blocked_scenario()
    limits = scenario.assess(20, *at_work("r", creation_timestamp=f"2026-01-01T{created}Z"))
    assert (limits.backoffs["spot"].n, most(limits)) == (1, 1)


@pytest.mark.rule("D12")
def test_a_restart_changes_nothing_about_a_back_off():
    things = at_work("r", creation_timestamp="2026-01-01T11:00:00Z")
    scenario, other = blocked_scenario(), blocked_scenario()
    for at_s in (12, 30, 40, 41, 60, 640):
        other.restart()
        going_on, started_anew = scenario.assess(at_s, *things), other.assess(at_s, *things)
        assert (going_on.types, going_on.backoffs, going_on.blocked) == (
            started_anew.types,
            started_anew.backoffs,
            started_anew.blocked,
        )


def test_a_restart_in_the_middle_of_a_try_sees_that_it_succeeded():
    scenario = blocked_scenario()
    scenario.restart()
    limits = scenario.assess(60, *at_work("c", creation_timestamp="2026-01-01T12:00:45Z"))
    assert limits.backoffs == {}


def test_the_backoff_is_reset_after_ten_minutes():
    scenario = blocked_scenario()
    assert scenario.assess(41 + 600).backoffs["spot"].n == 1
    assert scenario.assess(41 + 601).backoffs == {}


def test_the_end_of_a_backoff_is_rounded_up_to_whole_seconds():
    scenario = Scenario()
    scenario.assess(0, no_node("a"))
    assert scenario.assess(10.5, no_node("a")).backoffs["spot"].until == NOW + timedelta(seconds=41)


@pytest.mark.rule("SC:S13")
def test_a_group_that_never_works_gets_one_pod_in_five_minutes_at_most():
    scenario, made, alive, serial = Scenario(), [], [], 0
    for at_s in range(0, 4000, 5):
        limits = scenario.assess(at_s, *alive)
        stuck = set(names_of(limits.stuck))
        alive = [thing for thing in alive if thing.name not in stuck]
        for _ in range(min(5, most(limits)) - len(alive)):
            serial += 1
            made.append(at_s)
            alive.append(spot(f"w{serial}", node_name="n", containers=(waiting("ray", "ErrImagePull"),)))
    late = [at_s for at_s in made if at_s > 600]
    assert made.count(0) == 5
    assert late, "it is tried now and then"
    assert all(after - before >= 300 for before, after in pairwise(late))


# --- scores ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AS:S-22", "AS:S-23")
def test_a_failure_lowers_the_score_and_the_last_one_most():
    scenario = Scenario()
    scenario.backoffs = {
        "spot": Backoff(1, NOW - timedelta(seconds=30)),
        "on-demand": Backoff(1, NOW - timedelta(seconds=330)),
    }
    limits = scenario.assess(0)
    assert limits.availability["spot"] == 0.0
    assert 0.0 < limits.availability["on-demand"] < 1e-3
    assert limits.recoverable == {"spot": 60 / 600, "on-demand": 360 / 600}


@pytest.mark.rule("AS:S-23")
@pytest.mark.parametrize(("age_s", "score"), [(9, 0.0), (10, 10 / 600), (300, 0.5), (600, 1.0), (625, 1.0)])
def test_the_recovery_score_starts_at_zero_and_grows(age_s, score):
    scenario = Scenario()
    scenario.backoffs = {"spot": Backoff(1, NOW + timedelta(seconds=30 - age_s))}
    assert scenario.assess(0).recoverable["spot"] == pytest.approx(score)


def test_the_window_can_be_set():
    scenario = Scenario()
    scenario.backoffs = {"spot": Backoff(1, NOW + timedelta(seconds=15))}
    assert scenario.assess(0, recovery_s=60.0).recoverable["spot"] == 0.25


def test_a_group_without_failure_has_no_score():
    limits = Scenario().assess(0)
    assert (limits.availability, limits.recoverable, limits.requeue_after_s) == ({}, {}, None)


# --- what is left alone ----------------------------------------------------------------------------------------------


def test_a_suspended_group_is_not_validated():
    types = NodeTypes(TYPES.types, suspended=frozenset({"spot"}))
    scenario = Scenario(types)
    scenario.assess(0, no_node("a"))
    assert scenario.assess(1000, no_node("a")).blocked == {}


def test_the_minimum_of_a_blocked_group_is_not_topped_up():
    scenario = Scenario(NodeTypes((NodeType("spot", min_nodes=3, max_nodes=20, resources=CPU4),)))
    scenario.assess(0, no_node("a"))
    kind = scenario.assess(11, no_node("a")).types[0]
    assert (kind.min_nodes, kind.max_nodes, kind.available) == (3, 20, 0)


def test_limits_may_be_set_for_a_slower_world():
    scenario = Scenario()
    scenario.assess(0, no_node("a"))
    assert scenario.assess(100, no_node("a"), time_limits=TimeLimits(capacity_s=120)).blocked == {}


def test_a_working_cluster_is_left_as_it_is():
    limits = Scenario().assess(0, *at_work("a"), *at_work("b", "on-demand"))
    assert limits.types == TYPES.types
    assert [i.status for i in limits.instances] == [Status.RAY_RUNNING] * 3


@pytest.mark.rule("D12")
def test_a_clock_that_ran_ahead_makes_no_back_off_longer():
    scenario = Scenario()
    scenario.backoffs = {"spot": Backoff(2, NOW + timedelta(days=1))}
    limits = scenario.assess(0, HEAD, HEAD_NODE)
    assert limits.backoffs == {"spot": Backoff(2, NOW + timedelta(seconds=60))}
    assert scenario.assess(5, HEAD, HEAD_NODE).backoffs == limits.backoffs  # settled once, not moved on with every look


# --- what a look costs ---------------------------------------------------------------------------------------------


class Counted(dict[str, Any]):
    """How many of its entries were looked at."""

    reads = 0

    def __getitem__(self, key: str) -> Any:
        self.reads += 1
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.reads += 1
        return super().get(key, default)


def pod_reads(groups: int, pods: int) -> int:
    """Into the pods by name, for one judgement of a cluster of workers at work."""
    types = NodeTypes(tuple(NodeType(f"g{n}", max_nodes=pods, resources=CPU4) for n in range(groups)))
    things = [at_work(f"w{n}", f"g{n % groups}") for n in range(pods)]
    inputs = InstanceInputs(
        [HEAD, *(pod for pod, _ in things)], [HEAD_NODE, *(node for _, node in things)], types, 1000.0
    )
    found = instances(inputs)
    counted = Counted(found.pods)
    assess_availability(replace(found, pods=counted), types, AvailabilityInputs(NOW, 1000.0))
    return counted.reads


@pytest.mark.rule("FD:AS-A15")
def test_the_number_of_pod_reads_does_not_depend_on_the_number_of_groups():
    assert pod_reads(20, 100) == pod_reads(2, 100)
