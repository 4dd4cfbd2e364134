"""KubeRay's suspension: the order of status and deletions, also if the spec changes or the operator crashes."""

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from raytide.api import constants
from raytide.api.actions import Create, Delete, Outcome, Result
from raytide.api.conditions import find_condition, is_condition_true
from raytide.api.config import ClusterConfig
from raytide.api.meta import SERVICE_ACCOUNTS
from raytide.api.pod import PodView, pod_from_manifest
from raytide.api.status_patch import status_patch
from raytide.raycluster.desired_replicas import scaling_of
from raytide.raycluster.observed import Observed
from raytide.raycluster.plan import plan
from raytide.raycluster.status import status
from raytide.raycluster.suspension import Suspension, suspension_of
from support.builders import dying, group, head, head_service, parsed, pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PODS = (head(), pod("demo-cpu-worker-aaaaa"), pod("demo-cpu-worker-bbbbb"))
INVALID = {"workerGroupSpecs": [group(low=5, high=1)]}


def stored(**true):
    """A status in which these conditions are stored."""
    return {
        "conditions": [
            {"type": kind, "status": str(value), "reason": kind, "lastTransitionTime": "2025-12-31T00:00:00Z"}
            for kind, value in ((constants.SUSPENDED, true["suspended"]), (constants.SUSPENDING, true["suspending"]))
        ]
    }


SUSPENDING = stored(suspended=False, suspending=True)
SUSPENDED = stored(suspended=True, suspending=False)
RUNNING = stored(suspended=False, suspending=False)
BOTH = stored(suspended=True, suspending=True)


@dataclass
class Lifecycle:
    """A cluster and its pods, pass after pass; deleted pods are gone at the next pass."""

    suspend: bool | None = None
    status: dict = field(default_factory=dict)
    pods: tuple[PodView, ...] = PODS
    spec: dict = field(default_factory=dict)
    passes: int = 0
    can_write_status: bool = True

    @property
    def cluster(self):
        spec = {**self.spec, **({} if self.suspend is None else {"suspend": self.suspend})}
        return parsed(status=self.status, **spec)

    def pass_once(self):
        """One pass; gives the writes as words."""
        self.passes += 1
        observed = Observed(pods=self.pods, services=(head_service(),))
        suffixes = itertools.count(self.passes * 100)
        config = ClusterConfig()
        todo = plan(self.cluster, observed, config, lambda prefix: f"{prefix}{next(suffixes):05d}")
        gone = {action.uid for action in todo.actions if isinstance(action, Delete)}
        created = [pod_from_manifest(action.manifest) for action in todo.actions if isinstance(action, Create)]
        self.pods = tuple(pod for pod in (*self.pods, *created) if pod.uid not in gone or not pod.uid)
        outcomes = tuple(Outcome(action, Result.DONE) for action in todo.actions)
        after = Observed(pods=self.pods, services=(head_service(),))
        now = NOW + timedelta(seconds=self.passes)
        computed = status(self.cluster, after, todo, outcomes, now, scaling=scaling_of(self.cluster, after))
        patch = status_patch(self.cluster, computed)
        if patch and self.can_write_status:
            self.status = computed
        verbs = {Create: "create", Delete: "delete"}
        written = [verbs[type(action)] for action in todo.actions]
        return written, bool(patch), todo.is_status_gated

    def is_true(self, kind):
        return is_condition_true(self.status.get("conditions", ()), kind)


# --- the phases --------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RC §5.4", "RC:SU-4")
@pytest.mark.parametrize(
    ("conditions", "suspend", "phase"),
    [
        pytest.param({}, None, Suspension.NONE, id="nothing stored, nothing requested"),
        pytest.param(RUNNING, False, Suspension.NONE, id="running"),
        pytest.param(RUNNING, True, Suspension.REQUESTED, id="requested, not stored"),
        pytest.param(SUSPENDING, True, Suspension.SUSPENDING, id="stored"),
        pytest.param(SUSPENDING, None, Suspension.SUSPENDING, id="the field was removed: it is completed"),
        pytest.param(SUSPENDING, False, Suspension.SUSPENDING, id="the field went back: it is completed"),
        pytest.param(BOTH, False, Suspension.SUSPENDING, id="both stored: completed, and so repaired"),
        pytest.param(SUSPENDED, True, Suspension.SUSPENDED, id="suspended"),
        pytest.param(SUSPENDED, None, Suspension.SUSPENDED, id="removing the field resumes nothing"),
        pytest.param(SUSPENDED, False, Suspension.RESUMING, id="only an explicit false does"),
    ],
)
def test_the_phase_is_derived_from_what_is_stored_and_then_from_the_spec(conditions, suspend, phase):
    spec = {} if suspend is None else {"suspend": suspend}
    assert suspension_of(parsed(status=conditions, **spec)) is phase


# --- a whole lifecycle -------------------------------------------------------------------------------------------------


@pytest.mark.rule("FD:RC-B4", "RC §5.4", "RC:SU-2")
def test_suspending_is_stored_before_the_first_delete_and_the_state_follows_the_last_pod():
    lifecycle = Lifecycle()
    lifecycle.pass_once()
    assert lifecycle.status["state"] == "ready"
    lifecycle.suspend = True
    assert lifecycle.pass_once() == ([], True, True)
    assert lifecycle.is_true(constants.SUSPENDING)
    assert not lifecycle.is_true(constants.SUSPENDED)
    assert lifecycle.status["state"] == "ready"
    assert lifecycle.pass_once() == (["delete"] * 3, True, True)
    assert lifecycle.is_true(constants.SUSPENDED)
    assert not lifecycle.is_true(constants.SUSPENDING)
    assert lifecycle.status["state"] == "suspended"
    assert not lifecycle.is_true(constants.PROVISIONED)
    provisioned = find_condition(lifecycle.status["conditions"], constants.PROVISIONED)
    assert (provisioned["reason"], provisioned["message"]) == (
        "RayClusterPodsProvisioning",
        "the RayCluster has been suspended",
    )
    assert lifecycle.pass_once()[:2] == ([], False)


@pytest.mark.rule("FD:RC-B4")
def test_a_pod_that_is_still_ending_keeps_the_cluster_active():
    """Controllers that wait for the capacity of a suspended cluster read its state: it must not change before the capacity is free."""
    lifecycle = Lifecycle(suspend=True, status={**SUSPENDING, "state": "ready"}, pods=(dying("demo-cpu-worker-aaaaa"),))
    lifecycle.pass_once()
    assert lifecycle.status["state"] == "ready"
    assert lifecycle.is_true(constants.SUSPENDING)
    lifecycle.pods = ()
    lifecycle.pass_once()
    assert lifecycle.status["state"] == "suspended"
    assert lifecycle.is_true(constants.SUSPENDED)


@pytest.mark.rule("RC §5.4", "RC:SU-2")
def test_a_resume_is_stored_before_the_first_pod_is_made():
    lifecycle = Lifecycle(suspend=False, status={**SUSPENDED, "state": "suspended"}, pods=())
    assert lifecycle.pass_once() == ([], True, True)
    assert not lifecycle.is_true(constants.SUSPENDED)
    assert lifecycle.status["state"] == "suspended"
    written, _, is_gated = lifecycle.pass_once()
    assert (written, is_gated) == (["create"] * 3, False)
    assert lifecycle.status["state"] == "suspended"
    lifecycle.pods = PODS
    lifecycle.pass_once()
    assert lifecycle.status["state"] == "ready"
    assert lifecycle.is_true(constants.PROVISIONED)


@pytest.mark.rule("RC:SU-3")
def test_a_cluster_that_is_created_suspended_never_has_a_pod():
    lifecycle = Lifecycle(suspend=True, pods=())
    assert [lifecycle.pass_once()[0] for _ in range(4)] == [[]] * 4
    assert lifecycle.is_true(constants.SUSPENDED)
    assert [condition["type"] for condition in lifecycle.status["conditions"]] == [
        constants.HEAD_POD_READY,
        constants.PROVISIONED,
        constants.SUSPENDED,
        constants.SUSPENDING,
    ]


# --- what cannot undo it -----------------------------------------------------------------------------------------------


@pytest.mark.rule("FD:RC-B7", "RC §5.4")
@pytest.mark.parametrize("suspend", [None, False], ids=["the field is absent", "the field is false"])
def test_a_suspension_in_the_status_is_completed_whatever_the_spec(suspend):
    lifecycle = Lifecycle(suspend=suspend, status={**SUSPENDING, "state": "ready"})
    written, _, _ = lifecycle.pass_once()
    assert written == ["delete"] * 3
    assert lifecycle.is_true(constants.SUSPENDED)
    assert lifecycle.status["state"] == "suspended"
    later = [lifecycle.pass_once()[0] for _ in range(2)]
    assert later == ([[], []] if suspend is None else [[], ["create"] * 3])


@pytest.mark.rule("RC §5.4")
@pytest.mark.parametrize("suspend", [True, False], ids=["suspend", "resume"])
def test_while_the_status_cannot_be_written_no_pod_is_created_or_deleted(suspend):
    lifecycle = Lifecycle(suspend=suspend, status=RUNNING if suspend else SUSPENDED, pods=PODS if suspend else ())
    lifecycle.can_write_status = False
    assert [lifecycle.pass_once()[0] for _ in range(3)] == [[]] * 3


@pytest.mark.rule("FD:RC-B4")
def test_an_invalid_spec_does_not_interrupt_a_suspension():
    lifecycle = Lifecycle(suspend=True, spec=INVALID)
    assert lifecycle.pass_once() == ([], True, True)
    assert lifecycle.pass_once()[0] == ["delete"] * 3
    assert lifecycle.is_true(constants.SUSPENDED)
    assert lifecycle.is_true(constants.INVALID)
    assert lifecycle.status["state"] == "suspended"


def test_a_pod_that_appears_after_the_suspension_is_deleted():
    lifecycle = Lifecycle(suspend=True, status=SUSPENDED, pods=(pod("demo-cpu-worker-late1"),))
    assert lifecycle.pass_once()[0] == ["delete"]


@pytest.mark.rule("D6")
@pytest.mark.parametrize("conditions", [RUNNING, SUSPENDING, SUSPENDED])
def test_a_create_in_flight_is_read_and_not_repeated(conditions):
    unseen = pod("demo-cpu-worker-aaaaa", uid="")
    observed = Observed(pods=(unseen,), services=(head_service(),))
    todo = plan(parsed(suspend=True, status=conditions), observed, ClusterConfig(), str)
    assert (todo.actions, todo.unwanted) == ((), {unseen.name})


@pytest.mark.rule("RC:SU-1")
def test_services_are_made_while_suspended():
    todo = plan(parsed(suspend=True, status=SUSPENDED), Observed(), ClusterConfig(), str)
    assert [action.name for action in todo.actions] == ["demo-head-svc"]


def test_a_missing_service_account_does_not_hold_up_a_suspension():
    cluster = parsed(suspend=True, status=SUSPENDING, enableInTreeAutoscaling=True)
    template = cluster.spec.head_group_spec.template
    template["spec"]["serviceAccountName"] = "absent"
    observed = Observed(pods=PODS[1:], services=(head_service(),), missing=frozenset({(SERVICE_ACCOUNTS, "absent")}))
    todo = plan(cluster, observed, ClusterConfig(), str)
    assert [type(action) for action in todo.actions] == [Delete, Delete]


# --- events and status -------------------------------------------------------------------------------------------------


@pytest.mark.rule("RC:SU-6")
def test_the_deletes_carry_kuberays_reasons_and_a_uid():
    todo = plan(
        parsed(suspend=True, status=SUSPENDING), Observed(pods=PODS, services=(head_service(),)), ClusterConfig(), str
    )
    assert {(action.success_reason, action.failure_reason) for action in todo.actions} == {
        ("DeletedPod", "FailedToDeletePodCollection")
    }
    assert all(action.uid for action in todo.actions)
    rejected = tuple(Outcome(action, Result.REJECTED, message="denied") for action in todo.actions)
    cluster = parsed(suspend=True, status=SUSPENDING)
    observed = Observed(pods=PODS, services=(head_service(),))
    computed = status(cluster, observed, todo, rejected, NOW, scaling=scaling_of(cluster, observed))
    failure = find_condition(computed["conditions"], constants.REPLICA_FAILURE)
    assert (failure["status"], failure["reason"]) == ("True", "FailedDeleteAllPods")


@pytest.mark.parametrize("phase", [SUSPENDING, SUSPENDED])
def test_nothing_is_missing_while_suspended(phase):
    missing = {"type": constants.WORKERS_MISSING, "status": "True"}
    before = {"conditions": [*phase["conditions"], missing]}
    lifecycle = Lifecycle(suspend=True, status=before, pods=())
    lifecycle.pass_once()
    assert find_condition(lifecycle.status["conditions"], constants.WORKERS_MISSING) is None


# --- one group ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("RC:SU-7", "RC:WG-1")
def test_a_group_is_suspended_and_resumed_without_the_others():
    on, off = group("on", 1), group("off", 2)
    pods = (head(), pod("demo-on-worker-a", group="on"), pod("demo-off-worker-a", group="off"))
    lifecycle = Lifecycle(pods=pods, spec={"workerGroupSpecs": [on, {**off, "suspend": True}]})
    assert lifecycle.pass_once()[0] == ["delete"]
    assert [each.group for each in lifecycle.pods] == ["headgroup", "on"]
    assert (lifecycle.status["desiredWorkerReplicas"], lifecycle.status["maxWorkerReplicas"]) == (1, 10)
    assert lifecycle.status["state"] == "ready"
    assert not lifecycle.is_true(constants.SUSPENDING)
    lifecycle.spec = {"workerGroupSpecs": [on, off]}
    assert lifecycle.pass_once()[0] == ["create", "create"]
