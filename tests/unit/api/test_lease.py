"""Decisions about a lease: one test per rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytide.api.lease import (
    LeaseDecision,
    LeaseObservation,
    Record,
    build_held,
    build_released,
    decide,
    observe,
    record_of,
)
from raytide.api.meta import Key

pytestmark = pytest.mark.rule("D10")
KEY = Key("system", "ray-operator-leader")
LATER = "2026-01-01T00:00:09.000000Z"


def lease(holder="them", *, renewed="t1", duration=30, transitions=4, **spec):
    return {
        "metadata": {"name": KEY.name, "namespace": KEY.namespace, "resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": duration,
            "renewTime": renewed,
            "acquireTime": "t0",
            "leaseTransitions": transitions,
            **spec,
        },
    }


@pytest.mark.parametrize(
    ("holder", "unchanged_s", "decision"),
    [
        pytest.param(None, 0, LeaseDecision.ACQUIRE, id="a lease that does not exist is taken"),
        pytest.param("", 0, LeaseDecision.ACQUIRE, id="a released lease is acquired at once"),
        pytest.param(
            "us", 0, LeaseDecision.RENEW, id="a lease of this replica is renewed at once: its container was restarted"
        ),
        pytest.param("us", 99, LeaseDecision.RENEW, id="a lease of this replica is renewed at any age"),
        pytest.param(
            "them", 0, LeaseDecision.WAIT, id="a lease of another holder is waited for, whatever its timestamps"
        ),
        pytest.param("them", 29.9, LeaseDecision.WAIT, id="another holder may still renew"),
        pytest.param(
            "them", 30, LeaseDecision.ACQUIRE, id="another holder did not renew for the duration of the lease"
        ),
    ],
)
def test_the_decision_for_an_observed_lease(holder, unchanged_s, decision):
    sighting = None if holder is None else LeaseObservation(Record(holder, 30), at=1000.0, unchanged_s=unchanged_s)
    assert decide(sighting, "us") is decision


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"renewed": "t2"}, id="a renewal"),
        pytest.param({"holder": "others"}, id="another holder"),
        pytest.param({"transitions": 5}, id="another term of the same holder"),
    ],
)
def test_any_change_of_the_lease_restarts_the_wait(change):
    first = observe(None, record_of(lease(), default_s=1), 100.0, longest_gap_s=5)
    second = observe(first, record_of(lease(), default_s=1), 104.0, longest_gap_s=5)
    assert second.unchanged_s == 4.0
    assert observe(second, record_of(lease(**change), default_s=1), 105.0, longest_gap_s=5).unchanged_s == 0.0


def test_time_without_observations_does_not_count():
    record = record_of(lease(), default_s=1)
    first = observe(None, record, 100.0, longest_gap_s=5)
    assert observe(first, record, 700.0, longest_gap_s=5).unchanged_s == 5.0


@given(st.lists(st.floats(0, 1000), min_size=1), st.floats(0.1, 100))
def test_what_counts_is_never_more_than_the_time_that_passed(gaps, longest_gap_s):
    record, now = Record("them", 30), 0.0
    sighting = observe(None, record, now, longest_gap_s=longest_gap_s)
    for gap in gaps:
        now += gap
        sighting = observe(sighting, record, now, longest_gap_s=longest_gap_s)
        assert sighting.unchanged_s <= now + 1e-6


def test_a_new_lease_is_that_of_client_go():
    assert build_held(None, KEY, "us", 30, LATER) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": "system", "name": "ray-operator-leader"},
        "spec": {
            "holderIdentity": "us",
            "leaseDurationSeconds": 30,
            "acquireTime": LATER,
            "renewTime": LATER,
            "leaseTransitions": 0,
        },
    }


def test_taking_over_counts_a_transition_and_keeps_the_other_fields():
    held = build_held(lease(strategy="OldestEmulationVersion"), KEY, "us", 30, LATER)
    assert held["metadata"] == lease()["metadata"], "its resourceVersion guards the write"
    assert held["spec"] == {
        "holderIdentity": "us",
        "leaseDurationSeconds": 30,
        "acquireTime": LATER,
        "renewTime": LATER,
        "leaseTransitions": 5,
        "strategy": "OldestEmulationVersion",
    }


def test_a_renewal_changes_only_its_time():
    held = build_held(lease("us"), KEY, "us", 30, LATER)
    assert held["spec"] == {**lease("us")["spec"], "renewTime": LATER}


def test_a_released_lease_has_no_holder_and_a_duration_of_one_second():
    released = build_released(lease("us"), LATER)
    assert record_of(released, default_s=0) == Record("", 1, LATER, LATER, 4)


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None, "leaseDurationSeconds": None}])
def test_a_lease_with_an_empty_or_invalid_spec_has_no_holder(spec):
    record = record_of({"metadata": {}, "spec": spec}, default_s=30)
    assert (record.holder, record.duration_s, record.transitions) == ("", 30, 0)


def test_a_candidate_uses_the_duration_in_the_lease():
    record = record_of(lease(duration=15), default_s=30)
    assert decide(LeaseObservation(record, 0.0, unchanged_s=15.0), "us") is LeaseDecision.ACQUIRE
