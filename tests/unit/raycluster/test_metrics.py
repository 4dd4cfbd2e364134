"""Metrics of the workers of RayClusters, and that a deleted cluster or group leaves no series."""

from datetime import UTC, datetime

import pytest

from raytide.api import constants
from raytide.api.autoscaler_decision import LIMIT_REASONS
from raytide.api.meta import Key
from raytide.api.pod_failure import Cause
from raytide.autoscaler.scaling import limit_reasons
from raytide.autoscaler.state import group_availability
from raytide.metrics import REGISTRY
from raytide.raycluster.desired_replicas import scaling_of
from raytide.raycluster.metrics import WorkerMeasures, observe_capacity
from raytide.raycluster.observed import Observed
from raytide.raycluster.plan_types import RayClusterPlan
from raytide.raycluster.status import status
from raytide.raycluster.worker_samples import NO_SAMPLES, WorkerSamples, worker_samples
from support.builders import dying, group, head, head_service, parsed, pending, pod

KEY, OTHER_KEY = Key("team", "measured"), Key("team", "other")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TWO = (pod("a"), pod("b"))


@pytest.fixture
def measures():
    measures = WorkerMeasures()
    yield measures
    measures.clear()


def series(key=KEY):
    """The series of a RayCluster, as a scrape shows them."""
    return {
        (
            sample.name,
            *(value for label, value in sample.labels.items() if label not in ("namespace", "name")),
        ): sample.value
        for family in REGISTRY.collect()
        if family.name.startswith("raycluster_")
        for sample in family.samples
        if (sample.labels.get("namespace"), sample.labels.get("name")) == key
    }


def condition(kind, reason, is_true="True"):
    return {"type": kind, "status": is_true, "reason": reason}


def samples(*workers, groups=None, conditions=(), **spec):
    """The samples of a cluster with these workers and conditions."""
    cluster = parsed(*(groups or (group(),)), **spec)
    observed = Observed(pods=(head(), *workers), services=(head_service(),), seen_at=NOON)
    return worker_samples(cluster, observed, scaling_of(cluster, observed), (), conditions)


def computed(cluster, *workers):
    """The samples of a pass, with the conditions that it computes; its status too."""
    observed = Observed(pods=(head(), *workers), services=(head_service(),), seen_at=NOON)
    scaling = scaling_of(cluster, observed)
    found = status(cluster, observed, RayClusterPlan(), (), NOON, scaling=scaling)
    return worker_samples(cluster, observed, scaling, (), found["conditions"]), found


# --- time to capacity ----------------------------------------------------------------------------------------------------

MISSING = {**condition("WorkersMissing", "Unschedulable"), "lastTransitionTime": "2026-01-01T11:59:00Z"}


@pytest.mark.rule("RC §6.2")
@pytest.mark.parametrize(
    ("before", "after", "spec", "recorded"),
    [
        pytest.param([MISSING], [], {}, [60], id="the condition has ended"),
        pytest.param([MISSING], [condition("WorkersMissing", "None", "False")], {}, [60], id="it is False"),
        pytest.param([MISSING], [condition("WorkersMissing", "QuotaExceeded")], {}, [], id="it has another reason"),
        pytest.param([], [MISSING], {}, [], id="it begins"),
        pytest.param([], [], {}, [], id="it was never there"),
        pytest.param([MISSING], [], {"suspend": True}, [], id="the cluster is suspended"),
        pytest.param([{**MISSING, "lastTransitionTime": "soon"}], [], {}, [], id="without a valid timestamp"),
        pytest.param(
            [{**MISSING, "lastTransitionTime": "2026-01-01T12:05:00Z"}], [], {}, [0], id="the clock was set back"
        ),
    ],
)
def test_the_time_to_capacity_is_recorded_when_no_worker_is_missing_any_more(before, after, spec, recorded):
    def total(name):
        return REGISTRY.get_sample_value(f"raycluster_time_to_capacity_seconds_{name}")

    count, seconds = total("count"), total("sum")
    observe_capacity(parsed(group(), status={"conditions": before}, **spec), {"conditions": after}, NOON)
    assert (total("count") - count, total("sum") - seconds) == (len(recorded), sum(recorded))


# --- status -> samples ------------------------------------------------------------------------------------------------


@pytest.mark.rule("RC §6.2")
@pytest.mark.parametrize(
    ("workers", "groups", "counts"),
    [
        pytest.param(TWO, [group()], {"cpu": (2, 2)}, id="all are ready"),
        pytest.param((), [group()], {"cpu": (2, 0)}, id="there are none"),
        pytest.param((pod("a"), pending("b")), [group()], {"cpu": (2, 1)}, id="one is pending"),
        pytest.param((pod("a"), dying("b")), [group()], {"cpu": (2, 1)}, id="one is terminating"),
        pytest.param(TWO, [group(), group("gpu", 1)], {"cpu": (2, 2), "gpu": (1, 0)}, id="two groups"),
        pytest.param((), [group(numOfHosts=4)], {"cpu": (8, 0)}, id="hosts of replicas"),
        pytest.param(TWO, [group(replicas=0)], {"cpu": (0, 2)}, id="more than desired"),
        pytest.param(TWO, [group(replicas=20, high=5)], {"cpu": (5, 2)}, id="clamped replicas"),
    ],
)
def test_a_group_has_its_desired_and_its_ready_workers(workers, groups, counts):
    desired_and_ready = {
        (name, state): count
        for name, pair in counts.items()
        for state, count in zip(("desired", "ready"), pair, strict=True)
    }
    assert samples(*workers, groups=groups).workers == desired_and_ready


@pytest.mark.rule("RC §6.2")
def test_the_desired_workers_add_up_to_those_of_the_status_and_the_missing_ones_to_the_rest():
    found, stored = computed(parsed(group(replicas=5), group("gpu", 3)), *TWO, pod("c", group="gpu"))
    desired = sum(count for (_, state), count in found.workers.items() if state == "desired")
    assert desired == stored["desiredWorkerReplicas"] == 8
    assert found.missing == {("cpu", constants.WAITING_FOR_PODS): 3, ("gpu", constants.WAITING_FOR_PODS): 2}


@pytest.mark.rule("RC §6.2")
def test_surplus_workers_of_a_group_do_not_hide_missing_ones_of_another():
    found, _ = computed(parsed(group(replicas=1), group("gpu", 1)), *TWO)
    assert found.missing == {("gpu", constants.WAITING_FOR_PODS): 1}


@pytest.mark.rule("RC §6.2")
@pytest.mark.parametrize(
    ("conditions", "missing", "limited"),
    [
        pytest.param([], {}, {}, id="none"),
        pytest.param(
            [condition("WorkersMissing", "MadeUp")], {("cpu", constants.WAITING_FOR_PODS): 2}, {}, id="missing workers"
        ),
        pytest.param(
            [condition("WorkersMissing", "QuotaExceeded", "False")], {}, {}, id="a condition that is not True"
        ),
        pytest.param([condition("ScalingLimited", "MaxReached")], {}, {("MaxReached",): 1}, id="a limit"),
        pytest.param(
            [condition("ScalingLimited", "MadeUp17")], {}, {("Other",): 1}, id="a limit that a client made up"
        ),
        pytest.param([{"type": "ScalingLimited", "status": "True"}], {}, {("Other",): 1}, id="without a reason"),
        pytest.param(
            [condition("WorkersMissing", "Unschedulable"), condition("ScalingLimited", "Backoff")],
            {("cpu", constants.WAITING_FOR_PODS): 2},
            {("Backoff",): 1},
            id="both",
        ),
    ],
)
def test_reasons_are_those_of_the_conditions_and_of_a_closed_list(conditions, missing, limited):
    found = samples(conditions=conditions)
    assert (found.missing, found.limited) == (missing, limited)


def test_the_list_of_limits_has_every_reason_of_the_autoscaler():
    of_groups = {value for name, value in vars(limit_reasons).items() if name.isupper() and isinstance(value, str)}
    of_groups -= {limit_reasons.HEAD_TYPE}
    assert of_groups | group_availability.REASONS | {group_availability.IN_BACKOFF} == LIMIT_REASONS
    assert set(Cause) <= LIMIT_REASONS


# --- samples -> series ------------------------------------------------------------------------------------------------


FULL = WorkerSamples(
    workers={("cpu", "desired"): 3, ("cpu", "ready"): 1, ("gpu", "desired"): 1, ("gpu", "ready"): 1},
    missing={("cpu", "Unschedulable"): 2},
    limited={("MaxReached",): 1},
)


@pytest.mark.rule("RC §6.2")
def test_samples_are_the_series_of_a_scrape(measures):
    measures.update(KEY, FULL)
    assert series() == {
        ("raycluster_workers", "cpu", "desired"): 3,
        ("raycluster_workers", "cpu", "ready"): 1,
        ("raycluster_workers", "gpu", "desired"): 1,
        ("raycluster_workers", "gpu", "ready"): 1,
        ("raycluster_missing_workers", "cpu", "Unschedulable"): 2,
        ("raycluster_scaling_limited", "MaxReached"): 1,
    }


@pytest.mark.rule("RC §6.2", "RC:TR-5")
@pytest.mark.parametrize(
    ("now", "left"),
    [
        pytest.param(
            WorkerSamples(workers={("cpu", "desired"): 3, ("cpu", "ready"): 3}),
            {("raycluster_workers", "cpu", "desired"): 3, ("raycluster_workers", "cpu", "ready"): 3},
            id="a group was removed, none is missing",
        ),
        pytest.param(
            WorkerSamples(missing={("cpu", "QuotaExceeded"): 2}),
            {("raycluster_missing_workers", "cpu", "QuotaExceeded"): 2},
            id="the reason has changed",
        ),
        pytest.param(NO_SAMPLES, {}, id="the spec is invalid now"),
    ],
)
def test_what_a_pass_does_not_find_again_has_no_series(measures, now, left):
    measures.update(KEY, FULL)
    measures.update(KEY, now)
    assert series() == left


@pytest.mark.rule("RC §6.2", "RC:TR-5")
def test_a_deleted_cluster_leaves_no_series_and_others_keep_theirs(measures):
    measures.update(KEY, FULL)
    measures.update(OTHER_KEY, FULL)
    measures.forget(KEY)
    measures.forget(KEY)  # idempotent
    assert series() == {}
    assert len(series(OTHER_KEY)) == 6


def test_a_replica_that_stops_leading_exports_no_series_and_leaves_those_of_another(measures):
    other = WorkerMeasures()
    measures.update(KEY, FULL)
    other.update(OTHER_KEY, FULL)
    measures.clear()
    assert series() == {}
    assert len(series(OTHER_KEY)) == 6
    other.clear()
    assert series(OTHER_KEY) == {}
